// SPDX-License-Identifier: MIT

package soak

import (
	"context"
	"errors"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Etcd reads a single member, and the locks below a prefix.
func Etcd(client *clientv3.Client, prefix string) Source {
	return Source{
		Gauges: []Gauge{
			{Name: "etcd: open files, connections among them", From: "its /metrics", Share: 0.1, Slack: 8, Steps: true},
			{Name: "etcd: watchers", From: "its /metrics", Share: 0.1, Slack: 8, Back: true},
			{Name: "etcd: leases", From: "LeaseLeases", Slack: 30, Back: true},
			{Name: "etcd: locks", From: "other keys with a lease", Slack: 70, Empty: true},
			{Name: "etcd: keys without a lease", From: "below PREFIX", Slack: 6, Back: true},
			{Name: "etcd: size in use", Unit: "MiB", From: "Status", Share: 0.5, Slack: 8},
		},
		Read: func(ctx context.Context) ([]float64, error) {
			endpoints := client.Endpoints()
			if len(endpoints) == 0 {
				return nil, errors.New("etcd: no endpoint")
			}
			values, err := scrape(ctx, "http://"+endpoints[0]+"/metrics", "process_open_fds", "etcd_debugging_mvcc_watcher_total")
			if err != nil {
				return nil, err
			}
			leases, err := client.Leases(ctx)
			if err != nil {
				return nil, err
			}
			keys, err := client.Get(ctx, prefix+"/", clientv3.WithPrefix())
			if err != nil {
				return nil, err
			}
			var locks, others float64
			for _, kv := range keys.Kvs {
				if kv.Lease != 0 {
					locks++
				} else {
					others++
				}
			}
			status, err := client.Status(ctx, endpoints[0])
			if err != nil {
				return nil, err
			}
			return append(values, float64(len(leases.Leases)), locks, others, float64(status.DbSizeInUse)/mebibyte), nil
		},
	}
}
