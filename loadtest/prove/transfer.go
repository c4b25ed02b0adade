// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"shop/loadtest/scenario/money"
	transferflow "shop/loadtest/scenario/transfer"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/etcdfault"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/fault/replicafault"
	"shop/locking/etcdlock"
	"shop/transfer"
)

// transferReplica completes a program whose replicas move money with the scenario's strategy, with a batch
// as sidecar.
func (e *environment) transferReplica(t *loadtest.Trial, p *loadtest.Program) error {
	s := t.Scenario
	endpoints, err := e.endpoints(s)
	if err != nil {
		return err
	}
	urls, err := e.proxy(s, t.Postgres)
	if err != nil {
		return err
	}
	if urls, err = e.linked(s, "postgres", urls); err != nil {
		return err
	}
	each := make([]string, len(urls))
	for n := range each {
		if each[n], err = e.endpointsOf(s, n, endpoints); err != nil {
			return err
		}
	}
	own := []string{"--transfer-strategy", s.Strategy, "--transfer-lock-ttl", lockTTLs["transfer"].String()}
	if s.Strategy == transferflow.Combined { // one queue for the first HotMax accounts; other pairs, in a crash matrix, have a queue each
		accounts := money.Accounts(t.Plan)
		for _, a := range accounts[:min(len(accounts), transfer.HotMax)] {
			own = append(own, "--hot-accounts", a.ID.String())
		}
	}
	p.Args = func(n int, listen, metrics string) []string {
		return slices.Concat(e.serve(listen, metrics, t.Prefix, e.settings.RedisURL), own, []string{
			"--strategy", "row", "--mongo-url=",
			"--postgres-url", urls[n], "--etcd-endpoints", each[n],
		}, widen(s))
	}
	p.Sidecar = func() []string {
		return append([]string{
			"batch", "--lab", "--every", "50ms", "--log-level", "warn", "--lock-prefix", t.Prefix,
			"--postgres-url", t.Postgres, "--etcd-endpoints", endpoints[0],
		}, own...)
	}
	return nil
}

// widen returns the pauses between the last check of ctx and the guard, and between reading and acting on what was
// read. Under lease-revoked both are longer: in the first the next holder overtakes one whose lease was revoked, so that
// the guard refuses it, and in the second it reads what a holder without a guard is about to overwrite. late-write needs no
// pause, since it is one; and a step in between would send BEGIN alone, before the delayed part of the transaction.
func widen(s loadtest.Scenario) []string {
	begin, guard := widening, widening
	switch s.Fault {
	case transferflow.LateWrite:
		return nil
	case transferflow.LeaseRevoked:
		begin, guard = 5*widening, 5*widening
	case loadtest.Nemesis:
		begin = 5 * widening
	}
	return []string{
		"--failpoint", "transfer/after-begin=exp:" + begin.String(),
		"--failpoint", "transfer/after-guard=exp:" + guard.String(),
	}
}

// threeMembers reports whether a scenario needs a cluster of etcd: to lose members, or to give each replica
// a member of its own.
func threeMembers(s loadtest.Scenario) bool {
	return s.Fault == loadtest.Nemesis && s.Flow.Name == "transfer" || s.Fault == transferflow.LeaderKill || s.Fault == transferflow.NoQuorum || s.Strategy == "lease-id-fence"
}

// endpoints returns the etcd endpoints of the replicas: replica n has those at n modulo their number.
func (e *environment) endpoints(s loadtest.Scenario) ([]string, error) {
	if !threeMembers(s) {
		return []string{e.settings.Etcd}, nil
	}
	members, err := e.members("etcd3")
	var each []string
	for _, m := range members {
		each = append(each, m.Addr)
	}
	if s.Strategy != "lease-id-fence" {
		each = []string{strings.Join(each, ",")}
	}
	return each, err
}

// proxy returns the database URL of each replica: through a proxy of its own, where a fault needs one. It
// closes the proxies of the previous scenario.
func (e *environment) proxy(s loadtest.Scenario, databaseURL string) (urls []string, err error) {
	e.closeProxies()
	if s.Fault != transferflow.LateWrite && s.Fault != transferflow.CommitCut && s.Fault != loadtest.Nemesis {
		return slices.Repeat([]string{databaseURL}, e.settings.Replicas), nil
	}
	e.proxies, urls, err = through(e.settings.Replicas, databaseURL, pgfault.NewProxy)
	return urls, err
}

// etcd returns a client for the faults and the audit of a scenario.
func (e *environment) etcd(s loadtest.Scenario) (*clientv3.Client, error) {
	endpoints, err := e.endpoints(s)
	if err != nil {
		return nil, err
	}
	all := strings.Join(endpoints, ",")
	if client := e.etcds[all]; client != nil {
		return client, nil
	}
	config := etcdlock.Config(strings.Split(all, ",")...)
	config.Logger = zap.NewNop() // the client also returns its connection errors
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	e.etcds[all] = client
	e.closing = append(e.closing, func() { _ = client.Close() })
	return client, nil
}

// etcdMonitor watches the keys with which replicas queue for locks.
func (e *environment) etcdMonitor(ctx context.Context, t *loadtest.Trial) (loadtest.Monitor, error) {
	client, err := e.etcd(t.Scenario)
	if err != nil {
		return nil, err
	}
	queues, err := etcdfault.WatchQueues(ctx, client, t.Prefix)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, events []fault.Event) (map[string]int64, error) {
		ctx, cancel := context.WithTimeout(ctx, serverWait)
		defer cancel()
		seen, err := queues.Stop(ctx, over(events))
		counts := map[string]int64{"lock_calls": seen.All, "leases_ended": seen.Ended}
		if len(events) > 0 {
			counts["lock_calls_after"] = seen.After
		}
		return counts, err
	}, nil
}

// etcdFigures counts the locks in etcd, and the leases. The connections to etcd are open files of the replicas.
func (e *environment) etcdFigures(ctx context.Context, t *loadtest.Trial, _ map[string]int64) ([]loadtest.Figure, error) {
	locks, err := e.leftovers(ctx, t)
	if err != nil {
		return nil, err
	}
	client, err := e.etcd(t.Scenario)
	if err != nil {
		return nil, err
	}
	leases, err := client.Leases(ctx)
	if err != nil {
		return nil, err
	}
	return []loadtest.Figure{
		{Name: "etcd: locks", After: int64(len(locks))},
		{Name: "etcd: leases", After: int64(len(leases.Leases))},
	}, nil
}

// transferFault returns a fault of replicas, their traffic, their leases, etcd or PostgreSQL.
func (e *environment) transferFault(t *loadtest.Trial) (fault.Fault, error) {
	s := t.Scenario
	switch s.Fault {
	case loadtest.Pause:
		return replicafault.Pauses{Replicas: t.Replicas, TTL: lockTTLs["transfer"]}, nil
	case loadtest.CombinerPaused:
		return replicafault.Pauses{Replicas: t.Replicas, TTL: lockTTLs["transfer"], InBatch: t.Replicas.PauseInBatch}, nil
	case transferflow.CommitCut:
		return pgfault.CommitCut{Proxies: e.proxies, Every: 100 * time.Millisecond}, nil
	case transferflow.PGRestart:
		server, err := e.server("postgres")
		return fault.Restart{Server: server, Name: "postgres", Evidence: "pg_restarts", Times: 3}, err
	}
	client, err := e.etcd(s)
	if err != nil {
		return nil, err
	}
	switch s.Fault {
	case transferflow.LateWrite:
		return e.lateWrite(t, client), nil
	case transferflow.LeaseRevoked:
		return etcdfault.LeasesRevoked{Client: client, Prefix: t.Prefix, Every: lockTTLs["transfer"] / 8}, nil
	}
	members, err := e.members("etcd3")
	if err != nil {
		return nil, err
	}
	switch s.Fault {
	case transferflow.LeaderKill:
		return etcdfault.LeaderKill{Client: client, Members: members, Times: 2}, nil
	case transferflow.NoQuorum:
		return etcdfault.NoQuorum{Client: client, Members: members, Times: 2, Part: 0.4}, nil
	}
	return nil, fmt.Errorf("no such fault: %q", s.Fault)
}

// lateWrite delivers writes of a replica after a newer holder has written to the same accounts.
func (e *environment) lateWrite(t *loadtest.Trial, client *clientv3.Client) fault.Fault {
	return pgfault.LateWrite{
		Proxies: e.proxies, Replicas: t.Replicas, TTL: lockTTLs["transfer"], URL: t.Postgres, Record: e.keepLateWrite(t.Scenario),
		Evict: func(ctx context.Context, account string) (bool, error) {
			return etcdfault.Evict(ctx, client, t.Prefix, "account/"+account)
		},
	}
}

// keepLateWrite writes the diagram of a late write into the report's folder: of one that was refused, for a
// safe strategy, or committed, for a control; preferably of one whose replica was stopped.
func (e *environment) keepLateWrite(s loadtest.Scenario) func(pgfault.LateRecord) {
	var kept pgfault.Way
	file := filepath.Join(e.settings.Out, "late-write-"+s.Strategy+".mmd")
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

// openAccounts creates the plan's clients and accounts.
func openAccounts(ctx context.Context, pool *pgxpool.Pool, t *loadtest.Trial) ([]loadtest.Credentials, error) {
	service, err := transfer.New(transfer.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	clients, err := addClients(ctx, pool, t)
	if err != nil {
		return nil, err
	}
	for _, a := range money.Accounts(t.Plan) {
		account := transfer.Account{ID: a.ID, Owner: clients[a.Client].ID, Currency: a.Currency, Opening: a.Opening}
		if _, err := service.OpenAccount(ctx, account); err != nil {
			return nil, err
		}
	}
	return clients, nil
}

// leftovers lists the locks that are left in etcd.
func (e *environment) leftovers(ctx context.Context, t *loadtest.Trial) ([]string, error) {
	client, err := e.etcd(t.Scenario)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	return etcdfault.Leftovers(ctx, client, t.Prefix)
}
