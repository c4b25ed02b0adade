package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// TryAcquire takes all keys or none. It returns locking.ErrBusy if another request
// holds one of them or waits for it, and leaves no waiter behind.
//
// It removes what a request without an answer may have taken, and then retries, for
// at most half the TTL. If the removal is not confirmed in that time, it returns
// locking.ErrOutcomeUnknown, and the removal continues in the background.
func (s *Store) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, false)
}

// Acquire waits for all keys, in the order of arrival: in this process first,
// then among the processes. If ctx ends first, the error matches ctx.Err(), and
// locking.ErrBusy too if the request was in a queue. It has left that queue.
func (s *Store) Acquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return s.acquire(ctx, keys, true)
}

func (s *Store) acquire(ctx context.Context, keys []string, wait bool) (lease locking.Lease, err error) {
	if keys, err = checkKeys(keys); err != nil {
		return lease, err
	}
	defer describe(&err, "acquire", keys)
	switch {
	case s.life.Err() != nil:
		return lease, ErrClosed
	case ctx.Err() != nil:
		return lease, ended(ctx)
	}
	var t *locking.Ticket[string]
	if wait {
		if t, err = s.turn(ctx, keys); err != nil {
			return lease, err
		}
		if lease, passed := s.inherit(t, keys); passed {
			return lease, nil
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
	s.settle(keys)
	if t.Waited && ctx.Err() != nil && !errors.Is(err, locking.ErrBusy) {
		// The turn came late: too little was left of ctx for an answer from etcd.
		err = fmt.Errorf("%w: %w", locking.ErrBusy, err)
	}
	return lease, err
}

// turn waits until the request is the first of this process for its keys.
func (s *Store) turn(ctx context.Context, keys []string) (*locking.Ticket[string], error) {
	t, _ := s.queue.Join(nil, keys...)
	if !t.Waited {
		return t, nil
	}
	ctx, cancel := under(ctx, s.life, ErrClosed)
	defer cancel()
	if !t.Wait(ctx) {
		s.settle(keys)
		return nil, left(ctx)
	}
	return t, nil
}

// attempts repeats the attempt until one is granted, or fails with an error that a
// repetition does not help. After an attempt without an answer, the next one waits until
// etcd has confirmed that nothing of the unanswered one is left: the next attempt would
// queue behind its waiters. Half a TTL after the first attempt without an answer was sent,
// or when ctx ends, attempts stops waiting and returns the error of the last attempt.
func (s *Store) attempts(ctx context.Context, t *locking.Ticket[string], keys []string, wait bool) (locking.Lease, error) {
	var deadline time.Time // set by the first attempt without an answer
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
			continue // the session died during the attempt
		}
		undone := a.undo(err)
		switch {
		case errors.Is(err, errAgain):
			continue
		case !silent(err) || ctx.Err() != nil:
			return locking.Lease{}, err
		case deadline.IsZero():
			deadline = sent.Add(s.ttl / 2)
		}
		confirmed := false
		select {
		case confirmed = <-undone:
		case <-time.After(time.Until(deadline)):
		case <-ctx.Done():
		case <-s.life.Done():
		}
		if !confirmed {
			return locking.Lease{}, err
		}
	}
}

// attempt is one request for the keys, under names that no other attempt has.
type attempt struct {
	session *session
	ticket  *locking.Ticket[string] // its position in the queues of this process
	keys    []string
	nonce   string // the end of its names
	alone   bool   // it found no other in its queues
	created int64  // the revision at which the waiters entered the queues; 0: none was put
	fence   int64  // the same, or that at which a release passed the key to this attempt
}

// name is the name of the attempt's waiter for a key.
func (a *attempt) name(key string) string { return a.session.store.queueOf(key) + a.nonce }

// mine returns the conditions that all waiters exist and are of this attempt.
func (a *attempt) mine() (all []clientv3.Cmp) {
	for _, k := range a.keys {
		all = append(all, clientv3.Compare(clientv3.ModRevision(a.name(k)), "=", a.fence))
	}
	return all
}

// deletes returns the operations that delete all waiters.
func (a *attempt) deletes() (all []clientv3.Op) {
	for _, k := range a.keys {
		all = append(all, clientv3.OpDelete(a.name(k)))
	}
	return all
}

// nonce returns the end of an attempt's names, which no other attempt uses: a new one, or
// the nonce of an attempt that is over and all of whose requests are answered.
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

// errAgain reports an attempt that failed only because its session or its queue entries went
// away, or were fenced; a new attempt may succeed. undo, or the session's end, removes what it left.
var errAgain = errors.New("etcdlock: session changed under the attempt")

// absent is the condition that no key has this name, or, with an end, that none is from it up to
// there: etcd compares an empty range like a key that was never created. (clientv3.Compare and
// WithPrefix make the same, and copy it by reflection each time.)
func absent(name, end string) clientv3.Cmp {
	c := clientv3.CreateRevision(name)
	c.GetCompare().TargetUnion = &pb.Compare_CreateRevision{CreateRevision: 0}
	c.GetCompare().RangeEnd = []byte(end)
	return c
}

// put puts a waiter into each queue: one transaction, one revision. If wait is true, it reads the
// queues first; otherwise it requires that they are empty. It does nothing if the attempt is fenced,
// or etcd has another epoch than the Store. If again is true, locking.ErrBusy may mean these too:
// the caller puts with wait next, which tells them apart.
func (a *attempt) put(ctx context.Context, wait, again bool) (*clientv3.TxnResponse, error) {
	x, s := a.session, a.session.store
	conditions := []clientv3.Cmp{s.sameEpoch, absent(s.fencingKey(a.nonce), "")}
	var ops, otherwise []clientv3.Op
	if wait {
		ops = a.predecessors(0)
	} else {
		for _, k := range a.keys {
			queue := s.queueOf(k)
			conditions = append(conditions, absent(queue, clientv3.GetPrefixRangeEnd(queue)))
		}
	}
	for _, k := range a.keys {
		ops = append(ops, clientv3.OpPut(a.name(k), "", clientv3.WithLease(x.id)))
	}
	if !again {
		otherwise = append(otherwise, clientv3.OpGet(epochKey(s.prefix)))
	}
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	defer context.AfterFunc(x.life, cancel)() // the request ends with the session
	answer, err := s.client.Txn(limited).If(conditions...).Then(ops...).Else(otherwise...).Commit()
	switch {
	case err != nil && x.life.Err() != nil:
		return nil, errAgain
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		x.die(errRevoked)
		return nil, errAgain
	case err != nil:
		return nil, s.classify(ctx, err)
	case answer.Succeeded:
		a.created, a.fence = answer.Header.Revision, answer.Header.Revision
	}
	switch {
	case answer.Header.ClusterId != s.epoch.cluster, // restored as a new cluster, with the value: the caller undoes the put
		!answer.Succeeded && !again && !s.isEpoch(answer.Responses[0].GetResponseRange()):
		return nil, ErrEpoch
	case answer.Succeeded:
		return answer, nil
	case wait:
		return nil, errAgain
	}
	return nil, locking.ErrBusy
}
