// SPDX-License-Identifier: MIT

package driver

import (
	"slices"
	"sync"
	"time"
)

// relisten is the pause before a subscription that has failed is made again.
const relisten = 250 * time.Millisecond

// ears are the waiters of a process that hear of a release. The zero value is usable.
type ears struct {
	listening sync.Once

	mu    sync.Mutex
	woken map[chan struct{}][]string // with the keys and the owner of each
}

// hears reports whether the driver is a Listener.
func (s *Store) hears() bool {
	_, ok := s.driver.(Listener)
	return ok
}

// listen returns what is sent a value when one of the names, keys and an owner, was woken. nil: the server does not tell.
func (s *Store) listen(names []string) (woken <-chan struct{}, stop func()) {
	listener, ok := s.driver.(Listener)
	if !ok {
		return nil, func() {}
	}
	s.ears.listening.Do(func() {
		s.back.run(func() {
			for s.back.life.Err() == nil {
				_ = listener.Listen(s.back.life, s.ears.wake)
				Pause(s.back.life, relisten)
			}
		})
	})
	return s.ears.add(names)
}

func (e *ears) add(names []string) (woken <-chan struct{}, remove func()) {
	c := make(chan struct{}, 1)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.woken == nil {
		e.woken = map[chan struct{}][]string{}
	}
	e.woken[c] = names
	return c, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.woken, c)
	}
}

// wake wakes the waiters with a name, or all of them, whose messages may have been lost while there was no subscription.
func (e *ears) wake(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c, names := range e.woken {
		if name != "" && !slices.Contains(names, name) {
			continue
		}
		select {
		case c <- struct{}{}:
		default: // it was woken already
		}
	}
}
