package locking

import (
	"errors"
	"maps"
	"slices"
	"sync"
)

// ErrOneKey reports a request for several keys in one lease of a Store whose leases have one.
var ErrOneKey = errors.New("locking: a lease of this store has one key")

// OneKey checks the keys of a request, of a Store whose leases have one key.
func OneKey(keys []string) (string, error) {
	keys, err := SortedKeys(keys)
	switch {
	case err != nil:
		return "", err
	case len(keys) > 1:
		return "", ErrOneKey
	}
	return keys[0], nil
}

// Held keeps, for a Store, what belongs to each lease that is held, such as its connection. The
// zero value is empty. It is safe for concurrent use.
type Held[S any] struct {
	mu     sync.Mutex
	closed bool
	of     map[string]S // by Lease.Owner
}

// Add keeps what belongs to a new lease. False: the Held is closed, and keeps nothing.
func (h *Held[S]) Add(owner string, s S) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.of == nil {
		h.of = map[string]S{}
	}
	h.of[owner] = s
	return true
}

// Get returns what belongs to a lease. False: the lease is not held.
func (h *Held[S]) Get(owner string) (s S, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, held = h.of[owner]
	return s, held
}

// Remove is Get, once.
func (h *Held[S]) Remove(owner string) (s S, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, held = h.of[owner]
	delete(h.of, owner)
	return s, held
}

// Close removes all, and returns them.
func (h *Held[S]) Close() []S {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Collect(maps.Values(h.of))
	h.closed, h.of = true, nil
	return all
}
