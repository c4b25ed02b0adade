package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
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
	return s.acquire(ctx, keys, (*attempt).tryEnter, func(_ context.Context, keys []string) (*locking.Ticket[string], error) {
		if t, ok := s.queue.TryJoin(keys...); ok {
			return t, nil
		}
		return nil, locking.ErrBusy
	})
}

// Acquire waits for all keys, in the order of arrival: in this process first,
// then among the processes. If ctx ends first, the error matches ctx.Err(), and
// locking.ErrBusy too if it stood in a queue, which it has left then.
func (s *Store) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, (*attempt).enterAndWait, func(ctx context.Context, keys []string) (*locking.Ticket[string], error) {
		t, _ := s.queue.Join(nil, keys...)
		if !t.Wait(ctx) {
			return nil, fmt.Errorf("%w: %w", locking.ErrBusy, ended(ctx))
		}
		return t, nil
	})
}

// acquire is both ways to acquire: a turn in this process, then one in etcd.
func (s *Store) acquire(ctx context.Context, keys []string, enter func(*attempt, context.Context) error,
	join func(context.Context, []string) (*locking.Ticket[string], error),
) (lease locking.Lease, err error) {
	if keys, err = checkKeys(keys); err != nil {
		return lease, err
	}
	ctx, cancel := s.lifeOf(ctx)
	defer cancel()
	if err = ctx.Err(); err != nil {
		return lease, fmt.Errorf("etcdlock: acquire %q: %w", keys, ended(ctx))
	}
	t, err := join(ctx, keys)
	if err == nil {
		if lease, err = s.attempts(ctx, keys, t, enter); err != nil {
			t.Leave(keys...)
			if t.Waited && ctx.Err() != nil && !errors.Is(err, locking.ErrBusy) {
				err = fmt.Errorf("%w: %w", locking.ErrBusy, err) // the turn came late: what was left of ctx says nothing about etcd
			}
		}
	}
	if err != nil {
		return locking.Lease{}, fmt.Errorf("etcdlock: acquire %q: %w", keys, err)
	}
	return lease, nil
}

// attempts makes one attempt after another until one ends with a grant, or in a
// way that the next would too. Each begins when certainly nothing is left of the
// one before.
func (s *Store) attempts(ctx context.Context, keys []string, t *locking.Ticket[string], enter func(*attempt, context.Context) error) (locking.Lease, error) {
	var giveUp time.Time // after the first attempt without an answer
	for {
		x, err := s.ready(ctx)
		if err != nil {
			return locking.Lease{}, err
		}
		a, sent := x.attempt(keys), time.Now()
		err = enter(a, ctx)
		if err == nil {
			if l, ok := s.grant(a, t); ok {
				return l, nil
			}
			continue // the session died under it
		}
		undone := s.undo(a, err)
		switch silent := errors.Is(err, locking.ErrOutcomeUnknown); {
		case errors.Is(err, errAgain):
			continue
		case a.fence > 0 && ctx.Err() != nil:
			return locking.Lease{}, fmt.Errorf("%w: %w", locking.ErrBusy, err)
		case !silent || ctx.Err() != nil:
			return locking.Lease{}, err
		case giveUp.IsZero():
			giveUp = sent.Add(s.ttl / 2)
		}
		limited, cancel := context.WithDeadline(ctx, giveUp)
		select {
		case <-undone:
			err = nil
		case <-x.done:
		case <-limited.Done():
		}
		cancel()
		switch {
		case err != nil:
			return locking.Lease{}, err
		case time.Now().After(giveUp):
			return locking.Lease{}, errUndone
		}
	}
}

// attempt is one try to get the keys, under names that no other has.
type attempt struct {
	session *session
	keys    []string
	nonce   string // what its names end with
	queues  []string
	names   []string
	fence   int64 // the revision of the waiters; 0: none is there
}

func (x *session) attempt(keys []string) *attempt {
	a := &attempt{session: x, keys: keys, nonce: x.store.nonce()}
	for _, k := range keys {
		queue := x.store.queueOf(k)
		a.queues = append(a.queues, queue)
		a.names = append(a.names, queue+a.nonce)
	}
	return a
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

// owner is a grant's: no other has this nonce at this revision.
func (a *attempt) owner() string { return a.nonce + "-" + strconv.FormatInt(a.fence, 10) }

// errAgain: this attempt has certainly left nothing, through no fault of the
// caller or the keys. The next one may do better.
var errAgain = errors.New("etcdlock: session changed under the attempt")

// tryEnter takes the keys if all their queues are empty: one transaction.
// A range without keys is as good as a key that was never created: revision 0.
func (a *attempt) tryEnter(ctx context.Context) error {
	empty := make([]clientv3.Cmp, 0, len(a.queues))
	for _, q := range a.queues {
		empty = append(empty, clientv3.Compare(clientv3.CreateRevision(q), "=", 0).WithPrefix())
	}
	answer, err := a.enter(ctx, empty, nil)
	if err == nil && !answer.Succeeded {
		return locking.ErrBusy
	}
	return err
}

// enter puts a waiter into each queue, after it has done the reads: one transaction,
// one revision. It does nothing if the conditions are not met, or the attempt is
// fenced, or etcd has another epoch than the Store.
func (a *attempt) enter(ctx context.Context, conditions []clientv3.Cmp, reads []clientv3.Op) (*clientv3.TxnResponse, error) {
	x, s := a.session, a.session.store
	conditions = append(conditions, s.sameEpoch(), clientv3.Compare(clientv3.CreateRevision(s.fencingKey(a.nonce)), "=", 0))
	ops := reads
	for _, n := range a.names {
		ops = append(ops, clientv3.OpPut(n, "", clientv3.WithLease(x.id)))
	}
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	answer, err := s.client.Txn(limited).If(conditions...).Then(ops...).Else(clientv3.OpGet(epochKey(s.prefix))).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		x.die(errRevoked)
		return nil, errAgain
	case err != nil:
		return nil, classify(ctx, err)
	case answer.Succeeded:
		a.fence = answer.Header.Revision
	}
	if answer.Header.ClusterId != s.epoch.cluster || !answer.Succeeded && !s.isEpoch(answer.Responses[0].GetResponseRange()) {
		return nil, ErrEpoch // of a cluster restored as a new one the answer tells: what the attempt has put is undone
	}
	return answer, nil
}

// undo takes care that nothing stays of an attempt that has failed. undone closes
// when etcd has confirmed that.
func (s *Store) undo(a *attempt, err error) (undone <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case a.fence > 0, errors.Is(err, ErrNoSpace):
		return a.session.removeOrphans(a.names, "")
	case errors.Is(err, locking.ErrOutcomeUnknown):
		return a.session.removeOrphans(a.names, s.fencingKey(a.nonce))
	}
	return nil
}

// removeOrphans removes, in the background, names for which no caller waits: waiters
// whose callers left, Leases that ran out, releases and attempts without an answer.
// With the fencing key of an attempt, which may still be on its way, the same
// transaction makes that do nothing when it arrives. The caller holds the mutex.
func (x *session) removeOrphans(names []string, fencingKey string) (done <-chan struct{}) {
	confirmed := make(chan struct{})
	if x.dead == nil && !x.store.closed { // else it is revoked soon, or left to the TTL
		x.store.work.Go(func() { x.remove(names, fencingKey, confirmed) })
	}
	return confirmed
}

// remove tries for a third of the TTL. Then the session is given up: others are
// waiting behind what is left there.
func (x *session) remove(names []string, fencingKey string, confirmed chan<- struct{}) {
	s := x.store
	ops := deletes(names)
	if fencingKey != "" {
		ops = append(ops, clientv3.OpPut(fencingKey, "", clientv3.WithLease(x.id)))
	}
	for begin := time.Now(); ; {
		ctx, cancel := within(context.WithoutCancel(s.life), s.ttl/12)
		_, err := s.client.Txn(ctx).Then(ops...).Commit()
		cancel()
		switch {
		case err == nil:
			close(confirmed)
			return
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			x.die(errRevoked)
			return
		case time.Since(begin) >= s.ttl/3:
			x.die(errOrphans)
			return
		}
		select {
		case <-time.After(s.ttl / 100):
		case <-x.done:
			return
		case <-s.life.Done():
			return
		}
	}
}
