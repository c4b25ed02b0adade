package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another holds
// one of them, or waits for it, and has left no waiter behind then.
//
// After a request without an answer it makes sure that nothing is left of it, and
// tries once more, for at most half the TTL. If it cannot, the error is
// locking.ErrOutcomeUnknown and the rest is done in the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, false)
}

// Acquire waits for all keys, in the order of arrival: in this process first,
// then among the processes. If ctx ends first, the error matches ctx.Err(), and
// locking.ErrBusy too if it stood in a queue, which it has left then.
func (s *Store) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, true)
}

func (s *Store) acquire(ctx context.Context, keys []string, wait bool) (lease locking.Lease, err error) {
	if keys, err = checkKeys(keys); err != nil {
		return lease, err
	}
	defer describe(&err, "acquire", keys)
	ctx, cancel := under(ctx, s.life, ErrClosed)
	defer cancel()
	if ctx.Err() != nil {
		return lease, ended(ctx)
	}
	var t *locking.Ticket[string]
	if wait {
		if t, _ = s.queue.Join(nil, keys...); !t.Wait(ctx) {
			return lease, left(ctx)
		}
	} else {
		var free bool
		if t, free = s.queue.TryJoin(keys...); !free {
			return lease, locking.ErrBusy
		}
	}
	if lease, err = s.attempts(ctx, t, keys, wait); err == nil {
		return lease, nil
	}
	t.Leave(keys...)
	if t.Waited && ctx.Err() != nil && !errors.Is(err, locking.ErrBusy) {
		// The turn came late: what was left of ctx says nothing about etcd.
		err = fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return lease, err
}

// attempts makes one attempt after another until one ends with a grant, or in a
// way that the next would too. Each begins when certainly nothing is left of the
// one before.
func (s *Store) attempts(ctx context.Context, t *locking.Ticket[string], keys []string, wait bool) (locking.Lease, error) {
	var giveUp time.Time // after the first attempt without an answer
	for {
		x, err := s.ready(ctx)
		if err != nil {
			return locking.Lease{}, err
		}
		a, sent := &attempt{session: x, ticket: t, keys: keys, nonce: s.nonce()}, time.Now()
		if err = a.enter(ctx, wait); err == nil {
			if l, granted := a.grant(); granted {
				return l, nil
			}
			continue // the session died under it
		}
		undone := a.undo(err)
		switch silent := errors.Is(err, locking.ErrOutcomeUnknown); {
		case errors.Is(err, errAgain):
			continue
		case !silent || ctx.Err() != nil:
			return locking.Lease{}, err
		case giveUp.IsZero():
			giveUp = sent.Add(s.ttl / 2)
		}
		confirmed := false
		select {
		case confirmed = <-undone:
		case <-time.After(time.Until(giveUp)):
		case <-ctx.Done():
		}
		if !confirmed {
			return locking.Lease{}, err
		}
	}
}

// attempt is one try to get the keys, under names that no other has.
type attempt struct {
	session *session
	ticket  *locking.Ticket[string] // its place in the queues of this process
	keys    []string
	nonce   string // what its names end with
	fence   int64  // the revision of the waiters; 0: none is there
}

// name is that of the waiter for a key.
func (a *attempt) name(key string) string { return a.session.store.queueOf(key) + a.nonce }

// mine compares: all waiters are there, and of this attempt.
func (a *attempt) mine() (all []clientv3.Cmp) {
	for _, k := range a.keys {
		all = append(all, clientv3.Compare(clientv3.CreateRevision(a.name(k)), "=", a.fence))
	}
	return all
}

// deletes takes all waiters out of their queues.
func (a *attempt) deletes() (all []clientv3.Op) {
	for _, k := range a.keys {
		all = append(all, clientv3.OpDelete(a.name(k)))
	}
	return all
}

// nonce gives what no other attempt's names end with: that of one which is over and
// was answered to the last request, so that nothing of it can arrive any more, or a new one.
func (s *Store) nonce() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.nonces); n > 0 {
		old := s.nonces[n-1]
		s.nonces = s.nonces[:n-1]
		return old
	}
	return rand.Text() // at least 128 random bits
}

// errAgain: this attempt has certainly left nothing that a later one would wait for,
// through no fault of the caller or the keys. The next one may do better.
var errAgain = errors.New("etcdlock: session changed under the attempt")

// put puts a waiter into each queue: one transaction, one revision. To wait, it reads
// the queues first; to try, it demands that they are empty. (A range without keys is as
// good as a key that was never created: revision 0.) It does nothing if the attempt is
// fenced, or etcd has another epoch than the Store.
func (a *attempt) put(ctx context.Context, wait bool) (*clientv3.TxnResponse, error) {
	x, s := a.session, a.session.store
	conditions := []clientv3.Cmp{s.sameEpoch(), clientv3.Compare(clientv3.CreateRevision(s.fencingKey(a.nonce)), "=", 0)}
	var ops []clientv3.Op
	if wait {
		ops = a.predecessors(0)
	} else {
		for _, k := range a.keys {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(s.queueOf(k)), "=", 0).WithPrefix())
		}
	}
	for _, k := range a.keys {
		ops = append(ops, clientv3.OpPut(a.name(k), "", clientv3.WithLease(x.id)))
	}
	answer, err := s.txn(ctx, conditions, ops, clientv3.OpGet(epochKey(s.prefix)))
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		x.die(errRevoked)
		return nil, errAgain
	case err != nil:
		return nil, classify(ctx, err)
	case answer.Succeeded:
		a.fence = answer.Header.Revision
	}
	switch {
	case answer.Header.ClusterId != s.epoch.cluster, // restored as a new one, with the value: what was put is undone
		!answer.Succeeded && !s.isEpoch(answer.Responses[0].GetResponseRange()):
		return nil, ErrEpoch
	case answer.Succeeded:
		return answer, nil
	case wait:
		return nil, errAgain
	}
	return nil, locking.ErrBusy
}
