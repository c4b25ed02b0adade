package wallet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"shop/locking"
)

// errQueueFull matches locking.ErrBusy.
var errQueueFull = fmt.Errorf("%w: wallet: too many requests wait for this wallet", locking.ErrBusy)

// queues is the keyed queue of this process, one queue for each wallet that a request
// works on. Correctness does not depend on it. It spares MongoDB the requests that
// would lose: MongoDB cannot let a writer wait, only abort it.
//
// Of several processes, the head of each queue contends for the wallet. A process
// that hands the wallet on within itself takes it again in less time than another
// process needs to ask. So after a run it leaves the wallet alone for a gap, in
// which each head of the others asks at least once.
type queues struct {
	queue    locking.Queue[uuid.UUID]
	majority chan struct{} // a place for each request that waits for the majority, without its turn

	mu   sync.Mutex
	runs map[uuid.UUID]*run
}

// run is the time in which this process hands a wallet on within itself.
type run struct {
	since time.Time // when this process got the wallet from the others
	lost  time.Time // when another process last had it
	jobs  int       // that have their turn, or have just given it on
}

func newQueues(bound int) *queues {
	return &queues{
		queue:    locking.Queue[uuid.UUID]{Max: bound, Share: (bound + 3) / 4},
		majority: make(chan struct{}, majorityMax),
		runs:     map[uuid.UUID]*run{},
	}
}

// turn waits until the job is the first in the queues of all its wallets, where
// its strategy has queues. A job that has its turn keeps it.
func (s *Service) turn(ctx context.Context, j *job) (err error) {
	if j.leave != nil {
		return nil
	}
	leave := func() {}
	if s.queued() {
		leave, err = s.queues.enter(ctx, j)
		if errors.Is(err, errQueueFull) {
			s.count(QueueFull, s.method.Name)
		}
		if err != nil {
			return err
		}
	}
	j.leave = leave
	return s.step(ctx, AfterAcquire)
}

func (s *Service) queued() bool { return s.queues != nil && s.method.queued }

// giveTurn gives the job's turn on, if it has one.
func (j *job) giveTurn() {
	if j.leave != nil {
		j.leave()
		j.leave = nil
	}
}

// enter waits for the turn at all wallets of the job. leave gives it on. The bounds
// are for new requests: one whose commit is unknown was in the queue before, and
// must be resolved.
func (q *queues) enter(ctx context.Context, j *job) (leave func(), err error) {
	var client any
	if !j.unknown {
		client = j.req.Client
	}
	t, ok := q.queue.Join(client, j.ids()...)
	if !ok {
		return nil, errQueueFull
	}
	if !t.Wait(ctx) {
		return nil, context.Cause(ctx)
	}
	runs := q.begin(j.ids())
	return sync.OnceFunc(func() {
		for i, id := range j.ids() {
			q.giveOn(t, id, runs[i])
		}
	}), nil
}

// begin finds the run of each wallet, or begins one.
func (q *queues) begin(ids []uuid.UUID) (runs []*run) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		r := q.runs[id]
		if r == nil {
			r = &run{since: time.Now()}
			q.runs[id] = r
		}
		r.jobs++
		runs = append(runs, r)
	}
	return runs
}

// giveOn gives the turn at one wallet to the next job: at once, or after a gap, if
// this process has had the wallet for long enough.
func (q *queues) giveOn(t *locking.Ticket[uuid.UUID], id uuid.UUID, r *run) {
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

// unused forgets the run of a wallet that no job works on, but not at once: a client
// that comes again goes on with it.
func (q *queues) unused(id uuid.UUID, r *run) {
	time.AfterFunc(gap, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if r.jobs--; r.jobs == 0 {
			delete(q.runs, id)
		}
	})
}

// length is how long this process keeps the wallet: less, when others want it.
func (r *run) length() time.Duration {
	if time.Since(r.lost) < runAlone {
		return runShared
	}
	return runAlone
}

// held notes that another process has one of the wallets: a new run begins.
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
