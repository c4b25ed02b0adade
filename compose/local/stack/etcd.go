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

// etcd, alone and as a cluster of three. The version is the one that
// compose/local/etcd/go.mod names: distributions carry ones with lease bugs.
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
		ready:    etcdHealth,
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

func etcdArgs(i *instance) []string {
	peer := func(m *instance) string { return fmt.Sprintf("http://127.0.0.1:%d", m.Ports[1]) }
	var initial []string
	for _, m := range i.cluster {
		initial = append(initial, m.Name+"="+peer(m))
	}
	return []string{
		"--name", i.Name, "--data-dir", filepath.Join(i.Dir, "data"),
		"--listen-client-urls", "http://" + i.addr(), "--advertise-client-urls", "http://" + i.addr(),
		"--listen-peer-urls", peer(i), "--initial-advertise-peer-urls", peer(i),
		"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", i.Secret,
		"--log-level", "warn",
	}
}

// etcdHealth asks for a linearizable read: it needs a leader and a quorum.
func etcdHealth(ctx context.Context, i *instance) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+i.addr()+"/health", nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var health struct{ Health, Reason string }
	if err := json.NewDecoder(resp.Body).Decode(&health); err != nil {
		return err
	}
	if health.Health != "true" {
		return fmt.Errorf("etcd is not healthy: %s", health.Reason)
	}
	return nil
}
