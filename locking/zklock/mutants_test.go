package zklock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

var anyStore = locktest.Any[*Store]

type mutant struct {
	broken func(*Store) locking.Store
	caught []string
}

func mutants() map[string]mutant {
	own, freed := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Expires/FreesTheKeysAfterUntil"
	return map[string]mutant{
		"whole names sorted":     {tries(sortsNames), []string{"Exclusion/SeveralStores"}},
		"session id as fence":    {sessionIDs, []string{"Fence/GrowsOverGrants"}},
		"lost create forgotten":  {tries(forgets), []string{"Reply/LostOnAcquire"}},
		"releases any node":      {releasesTheFirst, []string{own}},
		"renews anything":        {renewsAnything, []string{own, "Lost/StaysLost"}},
		"node stays after Until": {immortal, []string{freed}},
		"first key only":         {anyStore(locktest.TakesTheFirst), []string{"Multi/Refused", "Keys/InvalidAreErrKey"}},
		"trusts from the answer": {func(s *Store) locking.Store { return locktest.TrustsFromTheAnswer(s, s.ttl+time.Millisecond) }, []string{"Until/NeverBeyondRequestPlusTTL"}},
		"trusts the wall clock":  {anyStore(locktest.TrustsTheWallClock), []string{freed}},
		"ignores ctx":            {anyStore(locktest.Deaf), []string{"Ctx/EndedBeforehandTakesNothing"}},
		"case ignored":           {func(s *Store) locking.Store { return locktest.Renames(s, strings.ToLower) }, []string{"Keys/OddOnesNeverCollide"}},
		"silence for an answer":  {anyStore(locktest.Guesses), []string{"Reply/NeverComes"}},
	}
}

// tries makes a mutant with another attempt. enter creates the node, and returns nil if it holds the key.
func tries(enter func(ctx context.Context, n *node) error) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		return locktest.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
			key, err := driver.OneKey(keys)
			if err != nil {
				return locking.Lease{}, err
			}
			x, err := s.ready(ctx, s.ttl)
			if err != nil {
				return locking.Lease{}, err
			}
			n := &node{store: s, session: x, key: key, queue: s.queueOf(key), owner: rand.Text()}
			if err := enter(ctx, n); err != nil {
				_ = n.free(ctx)
				return locking.Lease{}, err
			}
			l, _ := s.grant(n)
			return l, nil
		}}
	}
}

// sortsNames takes the order of whole names, which begin with random owners, for that of arrival.
func sortsNames(ctx context.Context, n *node) error {
	if err := n.create(ctx); err != nil {
		return err
	}
	if err := n.readFence(ctx); err != nil {
		return err
	}
	names, err := n.list(ctx)
	if err != nil {
		return err
	}
	if slices.Min(names) != path.Base(n.path) {
		return locking.ErrBusy
	}
	return nil
}

// forgets creates another node when the answer to the first was lost.
func forgets(ctx context.Context, n *node) error {
	if _, err := n.list(ctx); err != nil {
		return err
	}
	err := n.session.persist(ctx, func() error {
		n.owner, n.lost = rand.Text(), false
		once, cancel := context.WithCancel(ctx)
		cancel()
		return n.create(once)
	})
	if err != nil {
		return err
	}
	before, err := n.predecessor(ctx)
	if before != "" {
		return locking.ErrBusy
	}
	return cmp.Or(err, n.readFence(ctx))
}

// sessionIDs takes the id of the session for the fence.
func sessionIDs(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		l, err := s.TryAcquire(ctx, keys...)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.leases[l.Owner]; err == nil && n != nil {
			n.lease.Fence = locking.Fence(n.session.id)
			l = n.lease
		}
		return l, err
	}}
}

// releasesTheFirst deletes the first node of the queue, which may be that of another owner.
func releasesTheFirst(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Free: func(_ context.Context, l locking.Lease) error {
		if len(l.Keys) == 0 {
			return locking.ErrLost
		}
		names, _, err := s.conn.Children(s.queueOf(l.Keys[0]))
		if len(names) == 0 {
			return cmp.Or(err, locking.ErrLost)
		}
		return s.conn.Delete(s.queueOf(l.Keys[0])+"/"+names[0], -1)
	}}
}

// renewsAnything prolongs every lease, if the key has a queue.
func renewsAnything(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Keep: func(_ context.Context, l locking.Lease) (locking.Lease, error) {
		if len(l.Keys) == 0 {
			return l, locking.ErrLost
		}
		if _, _, err := s.conn.Children(s.queueOf(l.Keys[0])); errors.Is(err, zk.ErrNoNode) {
			return l, locking.ErrLost
		}
		l.Until = time.Now().Add(s.ttl / 2)
		return l, nil
	}}
}

// immortal keeps a Lease that is not renewed as long as its session lives.
func immortal(s *Store) locking.Store {
	return locktest.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		l, err := s.TryAcquire(ctx, keys...)
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := s.leases[l.Owner]; err == nil && n != nil {
			n.timer.Stop()
		}
		return l, err
	}}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	for name, m := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := shared(t)
			g.broken = m.broken
			locktest.WantFailing(t, g.open, promises, m.caught...)
		})
	}
}

// A Store must keep the promises that it makes, and must not keep one that it does not make.
func TestContract_NoticesWrongPromises(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	for check, change := range map[string]func(*locktest.Promises){
		"Expires/Not":                  func(p *locktest.Promises) { p.Expires = false },
		"Fence/None":                   func(p *locktest.Promises) { p.Fences, p.FencePersists = false, false },
		"Multi/AllOrNone":              func(p *locktest.Promises) { p.MultiKey = true },
		"TTL/UnrepresentableIsAnError": func(p *locktest.Promises) { p.MinTTL /= 2 },
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			p := promises
			change(&p)
			locktest.WantFailing(t, shared(t).open, p, check)
		})
	}
}
