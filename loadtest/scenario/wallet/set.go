// SPDX-License-Identifier: MIT

package wallet

import (
	"cmp"
	"context"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/replicafault"
)

// ofSet makes a fault of a private replica set.
func ofSet(of func(set []fault.Member) fault.Fault) loadtest.Setup {
	return loadtest.Setup{Mongo: loadtest.MongoThree, Inject: func(servers loadtest.Servers, _ *loadtest.Trial) (fault.Fault, error) {
		set, err := servers.Members(loadtest.MongoThree)
		return of(set), err
	}}
}

// pauseInTransaction pauses replicas that have a transaction open, for longer than MongoDB keeps it.
func pauseInTransaction(servers loadtest.Servers, t *loadtest.Trial) (fault.Fault, error) {
	set, err := servers.Members(loadtest.MongoThree)
	pauses := replicafault.Pauses{Replicas: t.Replicas, TTL: t.Scenario.Setup().Lifetime, Aim: func(ctx context.Context) ([]string, error) {
		return mongofault.Abandoned(ctx, set, aimWait)
	}}
	if t.Scenario.Fault == loadtest.CombinerPaused {
		pauses.InBatch = t.Replicas.PauseInBatch
	}
	return pauses, err
}

// aimWait is more than a third longer than a running replica is silent within a transaction (see Abandoned). The longest
// of many calls of the bonus service, which a batch makes side by side, takes about 50 ms.
const aimWait = 150 * time.Millisecond

// withSet adds what all faults of the wallets need: that MongoDB shows the replicas, and a private set of three members, to
// lose one. A crash matrix has one member, whose limit on transactions is shorter.
func withSet(faults []loadtest.FaultSpec) (more []loadtest.FaultSpec) {
	for _, f := range faults {
		f.Needs = append([]loadtest.Need{seen}, f.Needs...)
		if f.Fault != loadtest.NoFault {
			f.Setup.Mongo = cmp.Or(f.Setup.Mongo, loadtest.MongoThree)
		}
		more = append(more, f)
	}
	return more
}
