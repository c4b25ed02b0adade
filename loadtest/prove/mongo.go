package main

import (
	"context"
	"time"

	walletflow "shop/loadtest/scenario/wallet"

	"shop/loadtest"
	"shop/loadtest/fault/mongofault"
)

// mongoKind is the replica set that a scenario needs for itself: three members, to
// lose one, or because transactions of killed replicas have to end sooner than by a
// server's default. "": it shares the one that all use.
func mongoKind(s loadtest.Scenario) string {
	if s.Flow.Name != "wallet" || s.Fault == loadtest.NoFault {
		return ""
	}
	return "mongo3"
}

// transactionLifetime is how long MongoDB keeps the transaction of a silent client. A
// replica that is stopped must outlive it, and still have time left when it goes on.
func transactionLifetime(s loadtest.Scenario) time.Duration {
	if s.Fault == loadtest.Pause {
		return time.Second
	}
	return lockTTLs["wallet"]
}

// aimWait is longer than a replica at work is silent within a transaction.
const aimWait = 100 * time.Millisecond

// mongoURL is the server for a scenario's wallets.
func (e *environment) mongoURL(s loadtest.Scenario) (string, error) {
	kind := mongoKind(s)
	if kind == "" {
		return e.settings.MongoURL, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	// A set that an earlier scenario has broken is not used again: its members avoid for
	// a minute a member that did not answer. That would be a second fault.
	if err := e.retire(ctx, kind); err != nil {
		return "", err
	}
	set, err := e.mongoSet(kind)
	if err != nil {
		return "", err
	}
	return e.private[kind].Env["SHOP_MONGO_URL"], mongofault.Lifetime(ctx, set, int(transactionLifetime(s).Seconds()))
}

// mongoSet are the members of a private replica set.
func (e *environment) mongoSet(kind string) (set mongofault.Set, err error) {
	first, err := e.server(kind)
	if err != nil {
		return nil, err
	}
	members, err := e.together(first)
	for _, m := range members {
		set = append(set, mongofault.Member{Addr: m.Addr, Dir: m.Dir, Server: m})
	}
	return set, err
}

// compare says where the members of a scenario's own replica set differ. The shared
// one has a single member.
func (e *environment) compare(ctx context.Context, s loadtest.Scenario, database string) (m walletflow.Members, err error) {
	kind := mongoKind(s)
	if kind == "" {
		return m, nil
	}
	set, err := e.mongoSet(kind)
	if err != nil {
		return m, err
	}
	if m.Apart, err = mongofault.Agree(ctx, set, database); err != nil {
		return m, err
	}
	m.RolledBack, err = mongofault.RolledBack(ctx, set, database)
	return m, err
}
