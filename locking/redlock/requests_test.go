package redlock

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

func renew(t testing.TB, s *Store, l locking.Lease) (next locking.Lease) {
	t.Helper()
	err := locktest.Insist(t.Context(), func(bool) (err error) { next, err = s.Renew(t.Context(), l); return err })
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// put makes owner the holder of a key on some servers of s, for a minute; "": it is free.
func (s *Store) put(t testing.TB, key, owner string, servers ...int) {
	t.Helper()
	name := s.lock(key, "").name
	for _, i := range servers {
		locktest.Eventually(t, "a server has the owner", func() bool {
			err := s.servers[i].Del(t.Context(), name).Err()
			if err == nil && owner != "" {
				err = s.servers[i].Set(t.Context(), name, owner, time.Minute).Err()
			}
			return err == nil
		})
	}
}

// owners returns the holder of a key on each server of s; "": none, or the server is down.
func (s *Store) owners(t testing.TB, key string) []string {
	t.Helper()
	owners := make([]string, len(s.servers))
	for i, server := range s.servers {
		locktest.Eventually(t, "a server tells the owner", func() bool {
			var err error
			owners[i], err = server.Get(t.Context(), s.lock(key, "").name).Result()
			return err == nil || errors.Is(err, redis.Nil) || unsent(err)
		})
	}
	return owners
}

// wantOwners checks the owner of the key k on each server, long before a TTL has passed.
func wantOwners(t *testing.T, s *Store, want []string) {
	t.Helper()
	asked := time.Now()
	locktest.Eventually(t, fmt.Sprintf("the servers have the owners %q", want), func() bool {
		return slices.Equal(s.owners(t, "k"), want)
	})
	if took := time.Since(asked); took > s.ttl/2 {
		t.Errorf("only after %v, with a TTL of %v", took, s.ttl)
	}
}
