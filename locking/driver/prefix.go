// SPDX-License-Identifier: MIT

package driver

import (
	"fmt"

	"shop/locking"
)

func (o Options) checkPrefix() error {
	if o.Prefix == "" {
		return nil
	}
	err := locking.CheckKeys([]string{o.Prefix})
	if err == nil && o.NameMax > 0 && len(o.Prefix) >= o.NameMax {
		err = fmt.Errorf("%w: the prefix leaves no room for a key: %d bytes", locking.ErrKey, len(o.Prefix))
	}
	if err != nil {
		return fmt.Errorf("%s: Options.Prefix: %w", o.Name, err)
	}
	return nil
}

// fits returns why keys cannot be in one lease: there are several, or one is too long with the prefix.
func (s *Store) fits(keys []string) error {
	if s.o.OneKey && len(keys) > 1 {
		return fmt.Errorf("%w: a lease of %s has one", locking.ErrSeveralKeys, s.o.Name)
	}
	room := s.o.NameMax - len(s.o.Prefix)
	for _, key := range keys {
		if s.o.NameMax > 0 && len(key) > room {
			return fmt.Errorf("%w: with the prefix %q it may have %d: %.32q…", locking.ErrKey, s.o.Prefix, room, key)
		}
	}
	return nil
}

// names returns the names of keys in the server.
func (s *Store) names(keys []string) []string {
	if s.o.Prefix == "" {
		return keys[:len(keys):len(keys)]
	}
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = s.o.Prefix + key
	}
	return names
}

// named returns l with the names of its keys.
func (s *Store) named(l locking.Lease) locking.Lease {
	l.Keys = s.names(l.Keys)
	return l
}
