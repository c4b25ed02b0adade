package wallet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"shop/locking"
)

// errLineFull matches locking.ErrBusy.
var errLineFull = fmt.Errorf("%w: wallet: too many requests wait for this wallet", locking.ErrBusy)

// lines are the queues of this process, one for each wallet that a request works
// on: first come, first served. They make nothing right, MongoDB does that. They
// spare it the requests that would lose: it cannot let a writer wait, only abort it.
//
// Of several processes, the head of each queue contends for the wallet. A process
// that hands the wallet on within itself takes it again in less time than another
// process needs to ask. So after a run it leaves the wallet alone for a gap, in
// which each head of the others asks at least once.
type lines struct {
	max   int // how many requests may wait in one queue
	share int // how many of them may be of one client

	majority chan struct{} // a place for each request that waits for the majority, without its turn

	mu sync.Mutex
	at map[uuid.UUID]*line
}

// line is the queue of one wallet.
type line struct {
	queue  []*ticket // the first has the turn
	since  time.Time // when this process got the wallet from the others
	lost   time.Time // when another process last had it
	gap    bool      // the wallet is left to the others for the moment
	unused *time.Timer
}

// ticket is one place in a queue.
type ticket struct {
	client uuid.UUID
	turn   chan struct{} // closed when the turn comes
}

func newLines(bound int) *lines {
	return &lines{max: bound, share: (bound + 3) / 4, majority: make(chan struct{}, majorityMax), at: map[uuid.UUID]*line{}}
}

// turn waits until the job is first in line at all of its wallets, where its
// strategy has lines. A job that has its turn keeps it.
func (s *Service) turn(ctx context.Context, j *job) (err error) {
	if j.leave != nil {
		return nil
	}
	leave := func() {}
	if s.lined() {
		leave, err = s.lines.enter(ctx, j)
		if errors.Is(err, errLineFull) {
			s.count(LineFull, s.method.Name)
		}
		if err != nil {
			return err
		}
	}
	j.leave = leave
	return s.step(ctx, AfterAcquire)
}

func (s *Service) lined() bool { return s.lines != nil && s.method.lined }

// giveTurn gives the job's turn on, if it has one.
func (j *job) giveTurn() {
	if j.leave != nil {
		j.leave()
		j.leave = nil
	}
}

// enter waits for the turn at all wallets of the job, one after the other. The ids
// are in order, so that no circle of waits is possible. leave gives the turns on.
func (l *lines) enter(ctx context.Context, j *job) (leave func(), err error) {
	var has []func()
	leave = func() {
		for _, give := range has {
			give()
		}
	}
	for _, id := range j.ids() {
		give, err := l.wait(ctx, id, j)
		if err != nil {
			leave()
			return nil, err
		}
		has = append(has, give)
	}
	return leave, nil
}

// wait is for the turn at one wallet; give passes it on.
func (l *lines) wait(ctx context.Context, id uuid.UUID, j *job) (give func(), err error) {
	t, err := l.join(id, j)
	if err != nil {
		return nil, err
	}
	give = func() { l.remove(id, t) }
	select {
	case <-t.turn:
		return give, nil
	case <-ctx.Done():
		give() // wherever in the queue it is, and if its turn has come just now
		return nil, context.Cause(ctx)
	}
}

// join takes a place in the queue. The bounds are for new requests: one whose
// commit is unknown was in the queue before, and has to find out.
func (l *lines) join(id uuid.UUID, j *job) (*ticket, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[id]
	if at == nil {
		at = &line{since: time.Now()}
		l.at[id] = at
	}
	if len(at.queue) > 0 && !j.unknown {
		waiting, own := at.queue[1:], 0
		for _, t := range waiting {
			if t.client == j.req.Client {
				own++
			}
		}
		if len(waiting) >= l.max || own >= l.share {
			return nil, errLineFull
		}
	}
	t := &ticket{client: j.req.Client, turn: make(chan struct{})}
	at.queue = append(at.queue, t)
	if len(at.queue) == 1 && !at.gap {
		close(t.turn)
	}
	return t, nil
}

// remove takes a ticket out of the queue. If it had the turn, the next one has it,
// after a gap if this process has had the wallet for long enough.
func (l *lines) remove(id uuid.UUID, t *ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.at[id]
	if at == nil {
		return
	}
	i := slices.Index(at.queue, t)
	if i < 0 {
		return
	}
	at.queue = slices.Delete(at.queue, i, i+1)
	switch {
	case i > 0 || at.gap:
	case time.Since(at.since) < at.run():
		l.next(id, at)
	default:
		at.gap = true
		time.AfterFunc(gap, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			at.gap, at.since = false, time.Now()
			l.next(id, at)
		})
	}
}

// next gives the turn to the head of the queue. A queue that stays empty is
// forgotten, but not at once: a client that comes again goes on with its run.
func (l *lines) next(id uuid.UUID, at *line) {
	if len(at.queue) > 0 {
		close(at.queue[0].turn)
		return
	}
	if at.unused != nil {
		at.unused.Stop()
	}
	at.unused = time.AfterFunc(gap, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(at.queue) == 0 && !at.gap && l.at[id] == at {
			delete(l.at, id)
		}
	})
}

// run is how long this process keeps the wallet: less, when others want it.
func (at *line) run() time.Duration {
	if time.Since(at.lost) < runAlone {
		return runShared
	}
	return runAlone
}

// held notes that another process has one of the wallets: a new run begins.
func (l *lines) held(ids []uuid.UUID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if at := l.at[id]; at != nil {
			at.since = time.Now()
			at.lost = at.since
		}
	}
}
