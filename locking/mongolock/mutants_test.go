// SPDX-License-Identifier: MIT

package mongolock

import (
	"strings"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/locktest/faulty"
)

// mutant is a wrong variant of this store, or of its driver, and the checks that must notice it.
type mutant struct {
	store  func(locking.Store) locking.Store
	driver func(*leases) driver.Driver
	caught []string
}

func mutants() map[string]mutant {
	own, grows := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Fence/GrowsOverGrants"
	renames := func(encode func(string) string) func(locking.Store) locking.Store {
		return func(s locking.Store) locking.Store { return faulty.Renames(s, encode) }
	}
	return map[string]mutant{
		"grants held keys":            {driver: grantsHeldKeys, caught: []string{"Exclusion/SeveralStores", own, grows}},
		"releases others' locks":      {driver: releasesOthers, caught: []string{own}},
		"releases nothing":            {store: faulty.ReleasesNothing, caught: []string{"Lost/StaysLost", "Do/PanicFreesTheKeys"}},
		"release deletes":             {driver: releaseDeletes, caught: []string{grows}},
		"renews others' locks":        {driver: renewsOthers, caught: []string{own, "Own/RefusedRenewProlongsNothing"}},
		"renews expired leases":       {driver: renewsExpired, caught: []string{"Lost/StaysLost"}},
		"renew takes a lost key":      {driver: renewTakesAgain, caught: []string{"Lost/StaysLost"}},
		"renew does nothing":          {driver: renewDoesNothing, caught: []string{"Renew/KeepsTheKeysPastTheTTL", "Lost/StaysLost"}},
		"no TTL":                      {driver: neverExpires, caught: []string{"Expires/FreesTheKeysAfterUntil"}},
		"a new owner in each attempt": {driver: newOwners, caught: []string{"Reply/LostOnAcquire"}},
		"case ignored":                {store: renames(strings.ToLower), caught: []string{"Keys/OddOnesNeverCollide"}},
		"spaces trimmed":              {store: renames(strings.TrimSpace), caught: []string{"Keys/OddOnesNeverCollide"}},
		"cut at 255 bytes":            {store: renames(func(k string) string { return k[:min(len(k), 255)] }), caught: []string{"Keys/OddOnesNeverCollide"}},
		"silence taken for an answer": {store: faulty.Guesses, caught: []string{"Reply/NeverComes", "Reply/LostOnRenew", "Reply/LostOnRelease"}},
	}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	url := mongoURL(t)
	for name, m := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.WantFailing(t, target{url: url, driver: m.driver, store: m.store}.open, promises, m.caught...)
		})
	}
}

// A Store that rounds a TTL breaks the contract.
func TestContract_NoticesRoundedTTLs(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	locktest.WantFailing(t, func(t testing.TB) locktest.Backend {
		b := target{url: mongoURL(t)}.open(t)
		exact := b.Open
		b.Open = func(ttl time.Duration) (locking.Store, error) {
			return exact(max(ttl.Truncate(time.Millisecond), TTLMin))
		}
		return b
	}, promises, "TTL/UnrepresentableIsAnError")
}

// A Store must keep the promises that it makes, and must not keep one that it does not make.
func TestContract_NoticesWrongPromises(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	open := target{url: mongoURL(t)}.open
	for check, change := range map[string]func(*locktest.Promises){
		"Expires/Not":                  func(p *locktest.Promises) { p.Expires = false },
		"Fence/None":                   func(p *locktest.Promises) { p.Fences, p.FencePersists = false, false },
		"Fence/DoesNotSurviveRestart":  func(p *locktest.Promises) { p.FencePersists = false },
		"Multi/AllOrNone":              func(p *locktest.Promises) { p.MultiKey = true },
		"TTL/UnrepresentableIsAnError": func(p *locktest.Promises) { p.MinTTL = TTLMin / 2 },
	} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			p := promises
			change(&p)
			locktest.WantFailing(t, open, p, check)
		})
	}
}
