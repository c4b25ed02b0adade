package wallet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"

	"shop/locking"
)

// errLineFull matches locking.ErrBusy.
var errLineFull = fmt.Errorf("%w: wallet: too many wait for this wallet", locking.ErrBusy)

// lines are the waiting lines of this process, one for each wallet that someone
// works at: first come, first served. They make nothing right, MongoDB does that.
// They spare it those who would lose: it cannot let a writer wait, only abort him.
type lines struct {
	max int // how many may wait in one

	mu sync.Mutex
	at map[uuid.UUID][]chan struct{} // the first has the turn, the others' channels are closed when theirs comes
}

func newLines(bound int) *lines { return &lines{max: bound, at: map[uuid.UUID][]chan struct{}{}} }

// turn waits until the job is first in line at all of its wallets, where its strategy has lines.
func (s *Service) turn(ctx context.Context, j *job) (leave func(), err error) {
	leave = func() {}
	if s.lines != nil && s.method.lined {
		if leave, err = s.lines.enter(ctx, j.ids()...); errors.Is(err, errLineFull) {
			s.count(LineFull, s.method.Name)
		}
		if err != nil {
			return nil, err
		}
		j.leave = leave
	}
	if err := s.step(ctx, AfterAcquire); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// enter waits for the turn at all ids, one after the other. The ids are in order,
// so that nobody waits in a circle. Whoever entered must leave; once more does nothing.
func (l *lines) enter(ctx context.Context, ids ...uuid.UUID) (leave func(), err error) {
	var has []func()
	leave = func() {
		for _, give := range has {
			give()
		}
	}
	for _, id := range ids {
		give, err := l.wait(ctx, id)
		if err != nil {
			leave()
			return nil, err
		}
		has = append(has, give)
	}
	return leave, nil
}

// wait is for the turn at one wallet; give passes it on.
func (l *lines) wait(ctx context.Context, id uuid.UUID) (give func(), err error) {
	turn, err := l.join(id)
	if err != nil {
		return nil, err
	}
	give = func() { l.remove(id, turn) }
	select {
	case <-turn:
		return give, nil
	case <-ctx.Done():
		give() // wherever in the line it is, and if its turn has come just now
		return nil, context.Cause(ctx)
	}
}

func (l *lines) join(id uuid.UUID) (turn chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.at[id]
	if len(line) > l.max {
		return nil, errLineFull
	}
	turn = make(chan struct{})
	if len(line) == 0 {
		close(turn)
	}
	l.at[id] = append(line, turn)
	return turn, nil
}

// remove takes turn out of the line, and if it was the first, tells the next one.
func (l *lines) remove(id uuid.UUID, turn chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	line := l.at[id]
	i := slices.Index(line, turn)
	if i < 0 {
		return
	}
	line = slices.Delete(line, i, i+1)
	if i == 0 && len(line) > 0 {
		close(line[0])
	}
	if l.at[id] = line; len(line) == 0 {
		delete(l.at, id)
	}
}
