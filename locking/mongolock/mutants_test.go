package mongolock

import (
	"strings"
	"testing"
	"time"

	"shop/locking"
	"shop/locking/locktest"
)

// mutant is a wrong variant of this store, and the checks that must notice it.
type mutant struct {
	broken func(*Store) locking.Store
	caught []string
}

func mutants() map[string]mutant {
	own, grows := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Fence/GrowsOverGrants"
	return map[string]mutant{
		"grants held keys":             {grantsHeldKeys, []string{"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", own, grows}},
		"releases others' locks":       {releasesOthers, []string{own}},
		"releases nothing":             {anyStore(locktest.ReleasesNothing), []string{"Lost/StaysLost", "Do/PanicFreesTheKeys"}},
		"release deletes":              {releaseDeletes, []string{grows}},
		"renews others' locks":         {renewsOthers, []string{own, "Own/RefusedRenewProlongsNothing"}},
		"renews expired leases":        {renewsExpired, []string{"Lost/StaysLost"}},
		"renew takes a lost key":       {renewTakesAgain, []string{"Lost/StaysLost"}},
		"renew does nothing":           {renewDoesNothing, []string{"Renew/KeepsTheKeysPastTheTTL", "Lost/StaysLost"}},
		"no TTL":                       {neverExpires, []string{"Expires/FreesTheKeysAfterUntil"}},
		"a new owner in each attempt":  {newOwners, []string{"Reply/LostOnAcquire"}},
		"passes on others' locks":      {passesOthers, []string{"HandOver/OnlyTheirOwn"}},
		"passes the fence on":          {passes(without("fence")), []string{"HandOver/OnlyTheirOwn"}},
		"passes what is left of a TTL": {passes(without("expires")), []string{"HandOver/HoldsUntilUntil"}},
		"trust from the answer":        {trustsFromTheAnswer, []string{"Until/NeverBeyondRequestPlusTTL"}},
		"trust by the wall clock":      {anyStore(locktest.TrustsTheWallClock), []string{"Expires/FreesTheKeysAfterUntil"}},
		"ignores ctx":                  {anyStore(locktest.Deaf), []string{"Ctx/EndedBeforehandTakesNothing", "Ctx/ReturnsAtOnceWithoutAnAnswer"}},
		"the first of several keys":    {anyStore(locktest.TakesTheFirst), []string{"Multi/Refused"}},
		"case ignored":                 {renames(strings.ToLower), []string{"Keys/OddOnesNeverCollide"}},
		"spaces trimmed":               {renames(strings.TrimSpace), []string{"Keys/OddOnesNeverCollide"}},
		"cut at 255 bytes":             {renames(func(k string) string { return k[:min(len(k), 255)] }), []string{"Keys/OddOnesNeverCollide"}},
		"any key is valid":             {renames(func(string) string { return "k" }), []string{"Keys/InvalidAreErrKey"}},
		"silence taken for an answer":  {anyStore(locktest.Guesses), []string{"Reply/NeverComes", "Reply/LostOnRenew", "Reply/LostOnRelease"}},
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
			locktest.WantFailing(t, target{url: url, broken: m.broken}.open, promises, m.caught...)
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
