// SPDX-License-Identifier: MIT

package transfer_test

import (
	"testing"

	"shop/locking/etcdlock"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
	"shop/transfer"
)

type (
	events  = locktest.Counts[transfer.EventKind] // what the Service reports
	outcome = locktest.Outcome[transfer.Reply]
)

// bank is a schema of its own on the real server, with a Service and what the tests need.
type bank struct {
	*transfer.Service
	*pgtest.Database
	cfg    transfer.Config
	locks  *locks // in etcd, where the strategy needs them
	events *events
	total  int64 // of all openings
}

// open makes a schema with the tables, and opens a Service on it with cfg, and with
// the lock stores that its strategy needs.
func open(t testing.TB, cfg transfer.Config) *bank {
	t.Helper()
	return openWith(t, cfg, nil)
}

// openWith is open with the locks at.
func openWith(t testing.TB, cfg transfer.Config, at *locks) *bank {
	t.Helper()
	return openOn(pgtest.New(t, "transfer"), cfg, at)
}

// openOn is openWith on a schema that has its tables.
func openOn(d *pgtest.Database, cfg transfer.Config, at *locks) *bank {
	d.T.Helper()
	b := &bank{Database: d, cfg: cfg, locks: at}
	b.cfg.Pool = b.Pool
	if b.cfg.Strategy == "" {
		b.cfg.Strategy = "row"
	}
	b.cfg = b.withStores(b.cfg)
	b.Service, b.events = b.another(b.cfg)
	return b
}

// replica returns the config of another process, with a lock store of its own.
func (b *bank) replica() transfer.Config {
	b.T.Helper()
	cfg := b.cfg
	if _, ours := cfg.Locks.(*etcdlock.Store); ours {
		cfg.Locks = b.locks.store(b.T)
	}
	return cfg
}

// another opens another Service with cfg.
func (b *bank) another(cfg transfer.Config) (*transfer.Service, *events) {
	b.T.Helper()
	e := &events{}
	if cfg.Count == nil {
		cfg.Count = e.Count
	}
	svc, err := transfer.New(cfg)
	if err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(svc.Close) // before its lock store
	return svc, e
}
