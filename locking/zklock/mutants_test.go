// SPDX-License-Identifier: MIT

package zklock

import (
	"cmp"
	"context"
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
	"shop/locking/locktest/faulty"
)

// The stores in this file are wrong on purpose: the contract has to refuse them.

var anyStore = faulty.Any[*opened]

type mutant struct {
	broken func(*opened) locking.Store
	caught []string
}

func mutants() map[string]mutant {
	own, freed := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Expires/FreesTheKeysAfterUntil"
	return map[string]mutant{
		"whole names sorted":     {another(func(d *locks) driver.Driver { return sortsNames{d} }), []string{"Exclusion/SeveralStores"}},
		"session id as fence":    {another(func(d *locks) driver.Driver { return sessionIDs{d} }), []string{"Fence/GrowsOverGrants"}},
		"lost create forgotten":  {another(func(d *locks) driver.Driver { return forgets{d} }), []string{"Reply/LostOnAcquire"}},
		"releases any node":      {releasesTheFirst, []string{own}},
		"renews anything":        {renewsAnything, []string{own, "Lost/StaysLost"}},
		"node stays after Until": {immortal, []string{freed}},
		"first key only":         {anyStore(faulty.TakesTheFirst), []string{"Multi/Refused", "Keys/InvalidAreErrKey"}},
		"trusts from the answer": {func(s *opened) locking.Store { return faulty.TrustsFromTheAnswer(s, s.ttl+time.Millisecond) }, []string{"Until/NeverBeyondRequestPlusTTL"}},
		"trusts the wall clock":  {anyStore(faulty.TrustsTheWallClock), []string{freed}},
		"ignores ctx":            {anyStore(faulty.Deaf), []string{"Ctx/EndedBeforehandTakesNothing"}},
		"case ignored":           {func(s *opened) locking.Store { return faulty.Renames(s, strings.ToLower) }, []string{"Keys/OddOnesNeverCollide"}},
		"silence for an answer":  {anyStore(faulty.Guesses), []string{"Reply/NeverComes"}},
	}
}

// another makes a mutant with another driver.
func another(change func(*locks) driver.Driver) func(*opened) locking.Store {
	return func(s *opened) locking.Store {
		store, err := driver.New(change(s.locks), settings(s.ttl))
		if err != nil {
			panic(err)
		}
		return store
	}
}

// sortsNames takes the order of whole names, which begin with random owners, for that of arrival.
type sortsNames struct{ *locks }

func (d sortsNames) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	n := d.nodeOf(owner, keys[0])
	x, err := d.ready(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	n.session = x
	if _, err := n.create(); err != nil {
		return driver.Grant{}, err
	}
	names, err := n.list()
	if err != nil {
		return driver.Grant{}, err
	}
	if slices.Min(names) != path.Base(n.path) {
		return driver.Grant{}, n.leave(locking.ErrBusy)
	}
	d.locks.mu.Lock()
	n.granted = n.fence
	d.locks.mu.Unlock()
	return driver.Grant{Fence: locking.Fence(n.fence)}, nil
}

// forgets creates another node when the answer to the first was lost.
type forgets struct{ *locks }

func (d forgets) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	d.locks.mu.Lock()
	delete(d.nodes, owner)
	d.locks.mu.Unlock()
	return d.locks.Take(ctx, keys, owner, wait)
}

// sessionIDs takes the id of the session for the fence.
type sessionIDs struct{ *locks }

func (d sessionIDs) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	g, err := d.locks.Take(ctx, keys, owner, wait)
	if err != nil {
		return g, err
	}
	n := d.nodeOf(owner, keys[0])
	d.locks.mu.Lock()
	defer d.locks.mu.Unlock()
	n.granted = n.session.id
	g.Fence = locking.Fence(n.granted)
	return g, nil
}

// releasesTheFirst deletes the first node of the queue, which may be that of another owner.
func releasesTheFirst(s *opened) locking.Store {
	return faulty.Twisted{Store: s, Free: func(_ context.Context, l locking.Lease) error {
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
func renewsAnything(s *opened) locking.Store {
	return faulty.Twisted{Store: s, Keep: func(_ context.Context, l locking.Lease) (locking.Lease, error) {
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

// immortal keeps a lease that is not renewed as long as its session lives.
func immortal(s *opened) locking.Store {
	o := settings(s.ttl)
	o.Lasting = false
	store, err := driver.New(s.locks, o)
	if err != nil {
		panic(err)
	}
	return store
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
