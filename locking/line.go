// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrFull reports a request for which a Line has no place. It matches ErrBusy.
var ErrFull = Like(ErrBusy, errors.New("locking: too many requests wait for this key"))

// alone is how many turns a process keeps a key for which no other process has been seen in that time.
const alone = 20

// Line lets the requests of one process wait for keys in the order of arrival, one line for each key. In front of a
// server, one request of each process is enough to wait there: the one whose turn it is. It keeps its place until it
// gives the keys back. The zero value is usable.
//
// A process that passes a key on among its own requests takes it again sooner than another process asks for it. So after
// a Turn the line rests for a Gap, in which the key is left to the others. Among processes a Line promises no more than that
// gap: no order.
//
// A request enters the lines of all its keys in one step, and has its turn when it is
// first in each of them. So all lines have one common order, the oldest request
// has its turn outside of a gap, and a deadlock is impossible.
type Line[K comparable] struct {
	Max   int           // how many requests may wait for one key; 0: any number
	Share int           // how many of one owner may wait for one key; 0: any number
	Turn  time.Duration // from which this process passes a key on, while others want it, or 20 times as long while none has been seen; 0: for ever
	Gap   time.Duration // in which the key is then left to other processes

	mu    sync.Mutex
	lines map[K]*line[K]
}

// line is the line of one key.
type line[K comparable] struct {
	places  []*Place[K]
	since   time.Time // when the turn began
	seen    time.Time // when another process last had the key
	resting bool      // a gap
	left    int       // how often the last place, or a gap, has ended: a timer that was set before is over
}

// Place is a request in the lines of its keys.
type Place[K comparable] struct {
	Waited bool // the turn did not come at once

	line   *Line[K]
	owner  any
	keys   []K
	behind int           // the number of lines in which the place is not first, or that rest
	turn   chan struct{} // closed when behind is 0
}

// Enter takes a place for keys, each named once, and waits for its turn. ErrFull: a line has no place. If ctx ends first, the
// error is its cause. An owner of nil is exempt from Max and Share.
func (l *Line[K]) Enter(ctx context.Context, owner any, keys ...K) (*Place[K], error) {
	p, err := l.place(owner, keys...)
	if err != nil {
		return nil, err
	}
	return p, p.wait(ctx)
}

// place takes a place, as Enter does, and does not wait.
func (l *Line[K]) place(owner any, keys ...K) (*Place[K], error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if owner != nil {
		for _, k := range keys {
			if of := l.lines[k]; of != nil && l.full(owner, of.places) {
				return nil, fmt.Errorf("%w: %v", ErrFull, k)
			}
		}
	}
	return l.join(owner, keys), nil
}

// TryEnter takes a place only if no other request has one. It does not wait for the end of a gap.
func (l *Line[K]) TryEnter(keys ...K) (*Place[K], bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(keys, func(k K) bool { return l.lines[k] != nil && len(l.lines[k].places) > 0 }) {
		return nil, false
	}
	for _, k := range keys {
		if of := l.lines[k]; of != nil {
			of.wake()
		}
	}
	return l.join(nil, keys), true
}

// full reports whether the places behind the first have reached Max or owner's Share.
func (l *Line[K]) full(owner any, places []*Place[K]) bool {
	if len(places) == 0 {
		return false
	}
	own := 0
	for _, p := range places[1:] {
		if p.owner == owner {
			own++
		}
	}
	return l.Max > 0 && len(places) > l.Max || l.Share > 0 && own >= l.Share
}

func (l *Line[K]) join(owner any, keys []K) *Place[K] {
	if l.lines == nil {
		l.lines = map[K]*line[K]{}
	}
	p := &Place[K]{line: l, owner: owner, keys: keys, turn: make(chan struct{})}
	for _, k := range keys {
		of := l.lines[k]
		if of == nil {
			of = &line[K]{since: time.Now()}
			l.lines[k] = of
		}
		if len(of.places) > 0 || of.resting {
			p.behind++
		}
		of.places = append(of.places, p)
	}
	if p.Waited = p.behind > 0; !p.Waited {
		close(p.turn)
	}
	return p
}

// Len returns how many requests have a place for key, including the one that has its turn.
func (l *Line[K]) Len(key K) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.lines[key]; of != nil {
		return len(of.places)
	}
	return 0
}

// Waiting returns how many requests with an owner wait for their turn.
func (l *Line[K]) Waiting() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, of := range l.lines {
		for _, p := range of.places {
			if p.owner != nil && p.behind > 0 && p.keys[0] == key { // each counts once
				n++
			}
		}
	}
	return n
}

// Seen notes that another process has the keys: a new turn of this process begins, and is not longer than Turn.
func (l *Line[K]) Seen(keys ...K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range keys {
		if of := l.lines[k]; of != nil {
			of.since = time.Now()
			of.seen = of.since
		}
	}
}

// Shared reports whether another process has had the key lately.
func (l *Line[K]) Shared(key K) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.lines[key]
	return of != nil && time.Since(of.seen) < alone*l.Turn
}

// wait waits for the turn of a place. If ctx ends first, it returns the cause, and the place has left its lines.
func (p *Place[K]) wait(ctx context.Context) error {
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		p.Leave()
		return context.Cause(ctx)
	}
}

// Leave leaves all lines, from any position. Leaving twice has no effect.
func (p *Place[K]) Leave() {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	for _, k := range p.keys {
		p.line.leave(p, k)
	}
}

func (l *Line[K]) leave(p *Place[K], key K) {
	of := l.lines[key]
	if of == nil {
		return
	}
	i := slices.Index(of.places, p)
	if i < 0 {
		return
	}
	of.places = slices.Delete(of.places, i, i+1)
	switch {
	case i > 0 || of.resting: // it had no turn
	case l.Turn > 0 && time.Since(of.since) >= l.turn(of):
		of.resting = true
		l.later(key, of)
	case len(of.places) > 0:
		of.places[0].ahead()
	case l.Turn == 0:
		delete(l.lines, key)
	default: // a request that comes at once does not begin a new turn
		l.later(key, of)
	}
}

// turn is how long the turn of a line lasts.
func (l *Line[K]) turn(of *line[K]) time.Duration {
	if time.Since(of.seen) < alone*l.Turn {
		return l.Turn
	}
	return alone * l.Turn
}

// later ends the gap of a line after Gap, or forgets a line that no request has used since.
func (l *Line[K]) later(key K, of *line[K]) {
	of.left++
	left := of.left
	time.AfterFunc(l.Gap, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if of.left != left || l.lines[key] != of {
			return
		}
		of.wake()
		if len(of.places) == 0 {
			delete(l.lines, key)
		}
	})
}

// wake ends the gap of a line, and begins a turn.
func (of *line[K]) wake() {
	if !of.resting {
		return
	}
	of.resting, of.since = false, time.Now()
	of.left++
	if len(of.places) > 0 {
		of.places[0].ahead()
	}
}

// ahead notes that nothing is before the place in one line.
func (p *Place[K]) ahead() {
	if p.behind--; p.behind == 0 {
		close(p.turn)
	}
}
