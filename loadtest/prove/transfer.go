// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/etcdfault"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/scenario/money"
	transferflow "shop/loadtest/scenario/transfer"
	"shop/loadtest/site"
	"shop/locking/etcdlock"
	"shop/transfer"
)

// transferReplica completes a program whose replicas move money with the scenario's strategy, with a batch
// as sidecar.
func (e *environment) transferReplica(t *loadtest.Trial, p *site.Program) error {
	s := t.Scenario
	endpoints, err := e.endpoints(s)
	if err != nil {
		return err
	}
	urls, err := proxied(e, s, t.Postgres, &e.proxies, pgfault.NewProxy)
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
	if s.Strategy == loadtest.Combined { // one queue for the first HotMax accounts; other pairs, in a crash matrix, have a queue each
		accounts := money.Accounts(t.Plan)
		for _, a := range accounts[:min(len(accounts), transfer.HotMax)] {
			own = append(own, "--hot-accounts", a.ID.String())
		}
	}
	pauses := append(widened(s, "transfer/after-begin", s.Setup().Begin), widened(s, "transfer/after-guard", s.Setup().Guard)...)
	if s.Fault == transferflow.LateWrite { // it is a pause, and a step in between would send BEGIN alone, before the delayed part
		pauses = nil
	}
	p.Args = func(n int, listen, metrics string) []string {
		return slices.Concat(e.serve(listen, metrics, t.Prefix, e.settings.RedisURL), own, []string{
			"--strategy", "row", "--mongo-url=",
			"--postgres-url", urls[n], "--etcd-endpoints", each[n],
		}, pauses)
	}
	p.Sidecar = func() []string {
		return append([]string{
			"batch", "--lab", "--every", "50ms", "--log-level", "warn", "--lock-prefix", t.Prefix,
			"--postgres-url", t.Postgres, "--etcd-endpoints", endpoints[0],
		}, own...)
	}
	return nil
}

// endpoints returns the etcd endpoints of the replicas: replica n has those at n modulo their number.
func (e *environment) endpoints(s loadtest.Scenario) ([]string, error) {
	if s.Setup().Etcd == "" && s.Strategy != "lease-id-fence" { // each of whose replicas has a member of its own
		return []string{e.settings.Etcd}, nil
	}
	members, err := e.Members(loadtest.EtcdThree)
	var each []string
	for _, m := range members {
		each = append(each, m.Addr)
	}
	if s.Strategy != "lease-id-fence" {
		each = []string{strings.Join(each, ",")}
	}
	return each, err
}

// Etcd returns a client for the faults and the audit of a scenario.
func (e *environment) Etcd(s loadtest.Scenario) (*clientv3.Client, error) {
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
	client, err := e.Etcd(t.Scenario)
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
	client, err := e.Etcd(t.Scenario)
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
	client, err := e.Etcd(t.Scenario)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	return etcdfault.Leftovers(ctx, client, t.Prefix)
}

// over returns when the last event ended.
func over(events []fault.Event) (last time.Time) {
	for _, event := range events {
		if event.Until.After(last) {
			last = event.Until
		}
	}
	return last
}
