package etcdfault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/loadtest/fault"
)

// LeasesRevoked is an operator who thinks that the holders hang: again and again he
// revokes the lease of one of them. Its holder goes on in the belief that it has the
// lock, and the next comes in.
type LeasesRevoked struct {
	Client *clientv3.Client
	Prefix string // that the replicas were given
	Every  time.Duration
}

// Strike counts only leases that held a lock when they went.
func (l LeasesRevoked) Strike(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	event := fault.Event{What: "leases revoked", At: time.Now(), Seen: map[string]int64{}}
	for end := event.At.Add(over); time.Now().Before(end); {
		hits, err := l.revokeOne(ctx)
		event.Hits += hits
		event.Seen["leases_revoked"] = event.Hits
		event.Until = time.Now()
		if err != nil {
			return []fault.Event{event}, fmt.Errorf("revoke a lease: %w", err)
		}
		if !pause(ctx, min(l.Every, time.Until(end))) {
			break
		}
	}
	return []fault.Event{event}, ctx.Err()
}

func (l LeasesRevoked) revokeOne(ctx context.Context) (hits int64, err error) {
	held, err := holders(ctx, l.Client, l.Prefix)
	if err != nil || len(held) == 0 {
		return 0, err
	}
	leases := slices.Compact(slices.Sorted(maps.Values(held))) // one may hold a lot
	lost, err := revoke(ctx, l.Client, l.Prefix, leases[rand.IntN(len(leases))])
	return int64(min(len(lost), 1)), err // leases count, not locks
}

// Evict revokes the lease of who holds an account's lock. false: nobody does.
func Evict(ctx context.Context, client *clientv3.Client, prefix, account string) (bool, error) {
	id, err := uuid.Parse(account)
	if err != nil {
		return false, err
	}
	lock := queue(prefix, "account/"+id.String()) // as package transfer names it
	held, err := holders(ctx, client, prefix)
	lease, ok := held[lock]
	if err != nil || !ok {
		return false, err
	}
	lost, err := revoke(ctx, client, prefix, lease)
	return slices.Contains(lost, lock), err
}

// revoke ends a lease, and tells which locks it held in its last moment. One that
// has gone already held none.
func revoke(ctx context.Context, client *clientv3.Client, prefix string, lease clientv3.LeaseID) (lost []string, err error) {
	gone, err := client.Revoke(ctx, lease)
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	held, err := holders(ctx, client, prefix, clientv3.WithRev(gone.Header.Revision-1))
	for lock, by := range held {
		if by == lease {
			lost = append(lost, lock)
		}
	}
	return lost, err
}
