package etcdlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// traces are names of a session that have to go and that nobody waits for:
// waiters whose callers left, Leases that ran out, releases without an answer,
// and attempts without an answer.
type traces struct {
	list     []trace
	since    time.Time // when the oldest came, or the last ones were removed
	failed   error     // the last try to remove some
	underWay bool
}

// trace is a name that may be there. unsure: it may also come yet.
type trace struct {
	name   string
	unsure bool
}

func unsure(t trace) bool { return t.unsure }

// forget removes names in the background. With unsure, which is an attempt
// without an answer, nothing new goes on the session until that is done. The
// caller holds the mutex.
func (x *session) forget(names []string, unsure bool) {
	s, t := x.store, &x.traces
	if x.dead != nil || s.closed {
		return // revoked soon, or left to the TTL
	}
	if len(t.list) == 0 {
		t.since = time.Now()
	}
	for _, n := range names {
		t.list = append(t.list, trace{n, unsure})
	}
	if !t.underWay {
		t.underWay = true
		s.work.Go(x.clear)
	}
	s.tell()
}

// clear removes traces until there are none, many in one transaction. When it
// does not succeed within a third of the TTL, the session is given up: others
// are waiting behind what is left there.
func (x *session) clear() {
	s, t := x.store, &x.traces
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { t.underWay = false }()
	for len(t.list) > 0 && x.dead == nil {
		batch, gate := slices.Clone(t.list[:min(len(t.list), opsMax-1)]), slices.ContainsFunc(t.list, unsure)
		s.mu.Unlock()
		revision, err := x.remove(batch, gate)
		goOn := err == nil || sleep(s.life, s.ttl/100)
		s.mu.Lock()
		x.removed(batch, gate, revision, err)
		if !goOn {
			return
		}
	}
}

// remove deletes names in one transaction. With gate it writes the session's
// gate too: an attempt that is still on its way and arrives after this finds
// another revision there than the one it compares, and does nothing.
func (x *session) remove(list []trace, gate bool) (revision int64, err error) {
	s := x.store
	ctx, cancel := within(context.WithoutCancel(s.life), s.ttl/12)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(list)+1)
	for _, t := range list {
		ops = append(ops, clientv3.OpDelete(t.name))
	}
	if gate {
		ops = append(ops, clientv3.OpPut(x.gate, "", clientv3.WithLease(x.id)))
	}
	answer, err := s.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return 0, err
	}
	return answer.Header.Revision, nil
}

// removed takes in what came of it. The caller holds the mutex.
func (x *session) removed(list []trace, gate bool, revision int64, err error) {
	s, t := x.store, &x.traces
	defer s.tell()
	t.failed = err
	switch {
	case err == nil:
		t.list = slices.DeleteFunc(t.list, func(t trace) bool { return slices.Contains(list, t) })
		t.since = time.Now()
		if gate {
			x.gateRev = max(x.gateRev, revision)
		}
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		x.kill(errRevoked)
	case time.Since(t.since) >= s.ttl/3:
		x.kill(errTraces)
	}
}
