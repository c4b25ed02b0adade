package wallet

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"shop/locking"
)

// errQueueFull matches locking.ErrBusy.
var errQueueFull = locking.Like(locking.ErrBusy, errors.New("wallet: too many requests wait for this wallet"))

// queues has the queues of this process, one for each wallet that a request works on.
// Correctness does not depend on it. It spares MongoDB the requests that would lose: MongoDB
// cannot let a writer wait, only abort it.
//
// The heads of the queues of several processes contend for a wallet. A process that passes
// the wallet on to its own next request takes it again sooner than another process retries.
// So after a run it leaves the wallet alone for a gap, in which each head of the other
// processes retries at least once.
type queues struct {
	queue    locking.Queue[uuid.UUID]
	majority chan struct{} // has one place for each request that waits for the majority after its turn

	mu   sync.Mutex
	runs map[uuid.UUID]*run
}

// run is the time in which this process passes a wallet on among its own requests.
type run struct {
	since      time.Time // when this process got the wallet from the others
	lost       time.Time // when another process last had the wallet
	operations int       // how many have their turn, or have just passed it on
}

func newQueues(bound int) *queues {
	return &queues{
		queue:    locking.Queue[uuid.UUID]{Max: bound, Share: (bound + 3) / 4},
		majority: make(chan struct{}, majorityMax),
		runs:     map[uuid.UUID]*run{},
	}
}

// turn waits until the operation is the first in the queues of all its wallets, if its strategy has
// queues. An operation that has its turn keeps it. The turn of a batch is its lease.
func (s *Service) turn(ctx context.Context, o *operation) (err error) {
	if o.leave != nil || o.batch {
		return nil
	}
	leave := func() {}
	if s.queued() {
		leave, err = s.queues.enter(ctx, o)
		if errors.Is(err, errQueueFull) {
			s.count(QueueFull, s.method.Name)
		}
		if err != nil {
			return err
		}
	}
	o.leave = leave
	return s.step(ctx, AfterAcquire)
}

func (s *Service) queued() bool { return s.queues != nil && s.method.queued }

// passTurn passes the operation's turn on, if it has one.
func (o *operation) passTurn() {
	if o.leave != nil {
		o.leave()
		o.leave = nil
	}
}

// enter waits for the turn at all wallets of the operation. leave passes it on. The bounds of the
// queue apply to new requests only: one whose commit is unknown was in the queue before, and
// has to be resolved; a batch was bounded before.
func (q *queues) enter(ctx context.Context, o *operation) (leave func(), err error) {
	var client any
	if !o.unknown && !o.batch {
		client = o.req.Client
	}
	t, ok := q.queue.Join(client, o.ids()...)
	if !ok {
		return nil, errQueueFull
	}
	if !t.Wait(ctx) {
		return nil, context.Cause(ctx)
	}
	runs := q.begin(o.ids())
	return sync.OnceFunc(func() {
		for i, id := range o.ids() {
			q.passOn(t, id, runs[i])
		}
	}), nil
}

// begin returns the run of each wallet. It begins those that do not exist.
func (q *queues) begin(ids []uuid.UUID) (runs []*run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		r := q.runs[id]
		if r == nil {
			r = &run{since: time.Now()}
			q.runs[id] = r
		}
		r.operations++
		runs = append(runs, r)
	}
	return runs
}

// passOn passes the turn at one wallet to the next operation: at once, or after a gap if the run is over.
func (q *queues) passOn(t *locking.Ticket[uuid.UUID], id uuid.UUID, r *run) {
	q.mu.Lock()
	over := time.Since(r.since) >= r.length()
	q.mu.Unlock()
	if !over {
		t.Leave(id)
		q.unused(id, r)
		return
	}
	time.AfterFunc(gap, func() {
		q.mu.Lock()
		r.since = time.Now()
		q.mu.Unlock()
		t.Leave(id)
		q.unused(id, r)
	})
}

// unused deletes the run of a wallet that no operation uses, one gap later: a client's next
// request may still continue the run.
func (q *queues) unused(id uuid.UUID, r *run) {
	time.AfterFunc(gap, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if r.operations--; r.operations == 0 {
			delete(q.runs, id)
		}
	})
}

// length is how long this process keeps the wallet: less if other processes want it.
func (r *run) length() time.Duration {
	if time.Since(r.lost) < runAlone {
		return runShared
	}
	return runAlone
}

// shared reports whether another process has had the wallet lately.
func (q *queues) shared(id uuid.UUID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.runs[id]
	return r != nil && time.Since(r.lost) < runAlone
}

// held records that another process has one of the wallets: a new run begins.
func (q *queues) held(ids []uuid.UUID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		if r := q.runs[id]; r != nil {
			r.since = time.Now()
			r.lost = r.since
		}
	}
}
