package etcdlock

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
)

// attempt is one try to get the keys, under names that no other has.
type attempt struct {
	session *session
	gateRev int64
	keys    []string
	mark    string // what its names end with
	queues  []string
	names   []string
	fence   int64 // the revision of the waiters; 0: none is there
}

func (x *session) attempt(keys []string, gateRev int64) *attempt {
	a := &attempt{session: x, gateRev: gateRev, keys: keys, mark: x.store.mark()}
	for _, k := range keys {
		queue := x.store.queue(k)
		a.queues = append(a.queues, queue)
		a.names = append(a.names, queue+a.mark)
	}
	return a
}

// mark gives what no other attempt's names end with: that of one which is over
// and was answered to the last request, so that nothing of it can arrive any more, or a new one.
//
// New ones for all would be simpler. But etcd remembers a deleted name until its
// next compaction, and whoever reads a queue walks over all that were ever in it.
func (s *Store) mark() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.marks); n > 0 {
		m := s.marks[n-1]
		s.marks = s.marks[:n-1]
		return m
	}
	return rand.Text() // at least 128 random bits
}

// owner is a grant's: no other has this mark at this revision.
func (a *attempt) owner() string { return a.mark + "-" + strconv.FormatInt(a.fence, 10) }

// errAgain: this attempt has certainly left nothing, through no fault of the
// caller or the keys. The next one may do better.
var errAgain = errors.New("etcdlock: session changed under the attempt")

// tryEnter takes the keys if nobody is in any of their queues: one transaction.
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

// enter puts a waiter into each queue, after it has done the reads: one
// transaction, one revision. It does nothing if the conditions are not met, or
// another revision of the gate is found than the attempt was made under, or
// another source of fences than the Store's.
func (a *attempt) enter(ctx context.Context, conditions []clientv3.Cmp, reads []clientv3.Op) (*clientv3.TxnResponse, error) {
	x, s := a.session, a.session.store
	conditions = append(conditions, s.sameSource(), clientv3.Compare(clientv3.ModRevision(x.gate), "=", a.gateRev))
	ops := reads
	for _, n := range a.names {
		ops = append(ops, clientv3.OpPut(n, "", clientv3.WithLease(x.id)))
	}
	limited, cancel := within(ctx, patience(s.ttl))
	defer cancel()
	answer, err := s.client.Txn(limited).If(conditions...).Then(ops...).
		Else(clientv3.OpGet(x.gate), clientv3.OpGet(sourceKey(s.prefix))).Commit()
	if err != nil {
		return nil, classify(ctx, err)
	}
	if answer.Succeeded {
		a.fence = answer.Header.Revision
	}
	switch {
	case answer.Header.ClusterId != s.source.cluster:
		return nil, ErrSource // restored as a new cluster, and the value with it: what it has put is undone
	case !answer.Succeeded:
		return answer, a.shut(answer.Responses[0].GetResponseRange(), answer.Responses[1].GetResponseRange())
	}
	return answer, nil
}

// shut looks whether it was the source or the gate that refused the attempt. The
// gate is gone with the session's lease, in one step.
func (a *attempt) shut(gate, source *pb.RangeResponse) error {
	x := a.session
	if len(gate.Kvs) == 0 {
		x.die(errRevoked)
	}
	switch {
	case !x.store.isSource(source):
		return ErrSource
	case len(gate.Kvs) == 0:
		return errAgain
	case gate.Kvs[0].ModRevision == a.gateRev:
		return nil
	}
	x.store.mu.Lock()
	defer x.store.mu.Unlock()
	x.gateRev = max(x.gateRev, gate.Kvs[0].ModRevision)
	return errAgain
}

// look asks, for each queue, who is the last before us, as long as all of our own
// waiters are there, and the source; else it returns errAgain.
func (a *attempt) look(ctx context.Context) (*clientv3.TxnResponse, error) {
	s := a.session.store
	limited, cancel := within(ctx, patience(s.ttl))
	defer cancel()
	answer, err := s.client.Txn(limited).If(append(a.mine(), s.sameSource())...).Then(a.predecessors(a.fence - 1)...).Commit()
	if err == nil && !answer.Succeeded {
		return nil, errAgain
	}
	return answer, err
}

// mine compares: all waiters are there, and ours.
func (a *attempt) mine() []clientv3.Cmp { return mine(a.names, a.fence) }

func mine(names []string, fence int64) (all []clientv3.Cmp) {
	for _, n := range names {
		all = append(all, clientv3.Compare(clientv3.CreateRevision(n), "=", fence))
	}
	return all
}

// predecessors read, in each queue, the last who came at revision most or before; 0: the last.
func (a *attempt) predecessors(most int64) (reads []clientv3.Op) {
	for _, q := range a.queues {
		reads = append(reads, clientv3.OpGet(q, append(clientv3.WithLastCreate(), clientv3.WithMaxCreateRev(most), clientv3.WithKeysOnly())...))
	}
	return reads
}
