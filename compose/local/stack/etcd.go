// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
)

// etcd, as one member and as a cluster of three. It is built at the version in
// compose/local/etcd/go.mod: distributions package versions with lease bugs.
var (
	_ = register(etcdKind("etcd", 1))
	_ = register(etcdKind("etcd3", 3))
)

func etcdKind(name string, members int) kind {
	return kind{
		name:     name,
		variable: "SHOP_ETCD_ENDPOINTS",
		byName:   members > 1,
		members:  members,
		ports:    2, // clients, peers
		program:  program{file: "etcd", module: "compose/local/etcd"},
		argv:     etcdArgs,
		ready:    etcdMembers,
		url: func(i *instance) string {
			var endpoints []string
			for _, m := range i.cluster {
				endpoints = append(endpoints, m.addr())
			}
			return strings.Join(endpoints, ",")
		},
		stop:  syscall.SIGTERM,
		quick: syscall.SIGKILL,
	}
}

func etcdName(i *instance) string { return i.Name + "-" + i.Secret }

func etcdArgs(i *instance) []string {
	peer := func(m *instance) string { return fmt.Sprintf("http://127.0.0.1:%d", m.Ports[1]) }
	var initial []string
	for _, m := range i.cluster {
		initial = append(initial, etcdName(m)+"="+peer(m))
	}
	return []string{
		"--name", etcdName(i), "--data-dir", filepath.Join(i.Dir, "data"),
		"--listen-client-urls", "http://" + i.addr(), "--advertise-client-urls", "http://" + i.addr(),
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
func etcdMembers(ctx context.Context, i *instance) error {
	body := strings.NewReader(`{"linearizable":true}`)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+i.addr()+"/v3/cluster/member/list", body)
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
