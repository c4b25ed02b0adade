// SPDX-License-Identifier: MIT

package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
)

// Etcd is an etcd of this many members.
func Etcd(members int) Kind {
	return Kind{
		Name: "etcd", File: "etcd", Members: members,
		Ports: 2, // clients, peers
		Argv:  etcdArgs, Ready: etcdMembers, URL: (*Instance).Addresses,
	}
}

func etcdName(i *Instance) string { return i.Name + "-" + i.Secret }

func etcdArgs(i *Instance) []string {
	peer := func(m *Instance) string { return fmt.Sprintf("http://127.0.0.1:%d", m.Ports[1]) }
	var initial []string
	for _, m := range i.Cluster {
		initial = append(initial, etcdName(m)+"="+peer(m))
	}
	return []string{
		"--name", etcdName(i), "--data-dir", filepath.Join(i.Dir, "data"),
		"--listen-client-urls", "http://" + i.Addr(), "--advertise-client-urls", "http://" + i.Addr(),
		"--listen-peer-urls", peer(i), "--initial-advertise-peer-urls", peer(i),
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", i.Secret,
		// Each lock leaves revisions (690 bytes for two keys). Without compaction etcd
		// keeps them until its quota of 2 GiB is full. A watch that lags by more than
		// a minute reads its queue again.
		"--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1m",
		"--log-level", "warn",
	}
}

// etcdMembers reads the member list, linearizably: that needs a leader and a
// quorum. The instance's name holds the secret, so a foreign etcd does not list it.
func etcdMembers(ctx context.Context, i *Instance) error {
	body := strings.NewReader(`{"linearizable":true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.Addr()+"/v3/cluster/member/list", body)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var reply struct {
		Members []struct{ Name string }
		Message string
	}
	if err := json.NewDecoder(resp.Body).Decode(&reply); err != nil {
		return err
	}
	for _, m := range reply.Members {
		if m.Name == etcdName(i) {
			return nil
		}
	}
	return fmt.Errorf("etcd does not know %s: %s %s", i.Name, resp.Status, reply.Message)
}
