package etcdlock

import (
	"slices"
	"strings"
)

// rivalsMax bounds how many keys a Store remembers for enter: about 100 bytes each, and the key.
const rivalsMax = 10_000

// hadRivals reports whether another process was in one of the queues when this one last
// read them.
func (s *Store) hadRivals(keys []string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(keys, func(k string) bool { return s.rivals[k] })
}

// setRivals notes it for hadRivals.
func (s *Store) setRivals(keys []string, rivals bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.rivals) > rivalsMax {
		clear(s.rivals) // costs a request for each key that is still contended
	}
	for _, k := range keys {
		if rivals {
			s.rivals[strings.Clone(k)] = true // not the caller's buffer
		} else {
			delete(s.rivals, k)
		}
	}
}
