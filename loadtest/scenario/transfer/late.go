// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"os"
	"path/filepath"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/etcdfault"
	"shop/loadtest/fault/pgfault"
)

// Late delivers writes of a replica after a newer holder has written to the same accounts. The replicas must be
// Setup.Proxied.
func Late(servers loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
	client, err := servers.Etcd(t.Scenario)
	return pgfault.LateWrite{
		Proxies: servers.PostgresProxies(), Replicas: t.Replicas, TTL: t.TTL(), URL: t.Postgres,
		Record: keepLateWrite(t.Scenario, filepath.Join(servers.Folder(), "late-write-"+t.Scenario.Strategy+".mmd")),
		Evict: func(ctx context.Context, account string) (bool, error) {
			return etcdfault.Evict(ctx, client, t.Prefix, "account/"+account)
		},
	}, err
}

// keepLateWrite writes the diagram of a late write into a file: of one that was refused, for a
// safe strategy, or committed, for a control; preferably of one whose replica was stopped.
func keepLateWrite(s loadtest.Scenario, file string) func(pgfault.LateRecord) {
	var kept pgfault.Way
	return func(late pgfault.LateRecord) {
		telling := late.Refused && s.Expect == loadtest.Safe || late.Committed && s.Expect == loadtest.Violated
		if !telling || kept == pgfault.Stopped || kept == late.Way {
			return
		}
		if os.WriteFile(file, []byte(late.Diagram()), 0o644) == nil {
			kept = late.Way
		}
	}
}
