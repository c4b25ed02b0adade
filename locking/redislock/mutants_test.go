// SPDX-License-Identifier: MIT

package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/locktest/faulty"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
)

// mutant is a wrong variant of this store, or of its scripts, and the checks that must notice it.
type mutant struct {
	scripts func(*scripts)
	broken  func(locking.Store) locking.Store
	caught  []string
}

func mutants(t testing.TB) map[string]mutant {
	plainDel := redis.NewScript(`local n = 0; for i = 1, #KEYS do n = n + redis.call('DEL', KEYS[i]) end; return n`)
	acquire := func(from, to string) func(*scripts) {
		return func(s *scripts) { s.acquire = edited(t, acquireLua, from, to) }
	}
	renew := func(from, to string) func(*scripts) {
		return func(s *scripts) { s.renew = edited(t, renewLua, from, to) }
	}
	withoutTTL := strings.Replace(acquireLua, "redis.call('PEXPIRE', KEYS[i], ttl)", "", 1) // of a request that is sent twice
	own, compare := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end"
	return map[string]mutant{
		"grants held keys":      {acquire("if holder ~= owner then", "if false then"), nil, []string{"Exclusion/SeveralStores", own}},
		"release by plain DEL":  {func(s *scripts) { s.release = plainDel }, nil, []string{own}},
		"release does nothing":  {nil, faulty.ReleasesNothing, []string{"Lost/StaysLost", "Do/PanicFreesTheKeys", "Multi/AllOrNone"}},
		"renew without owner":   {renew(compare, "if not redis.call('GET', KEYS[i]) then return 0 end"), nil, []string{own}},
		"renew, then compare":   {renew(compare, "redis.call('PEXPIRE', KEYS[i], ARGV[2])\n  "+compare), nil, []string{"Own/RefusedRenewProlongsNothing"}},
		"renew re-creates":      {renew(compare, "if not redis.call('GET', KEYS[i]) then redis.call('SET', KEYS[i], ARGV[1]) end"), nil, []string{"Lost/StaysLost"}},
		"renew does nothing":    {func(s *scripts) { s.renew = redis.NewScript(`return 1`) }, nil, []string{"Renew/KeepsTheKeysPastTheTTL", "Lost/StaysLost"}},
		"no TTL":                {func(s *scripts) { s.acquire = edited(t, withoutTTL, ".. owner, 'PX', ttl)", ".. owner)") }, nil, []string{"Expires/FreesTheKeysAfterUntil"}},
		"own request forgotten": {acquire("if holder ~= owner then", "if value then"), nil, []string{"Reply/LostOnAcquire"}},
		"own request, new TTL forgotten": {acquire("for i = 1, locks do redis.call('PEXPIRE', KEYS[i], ttl) end\n  return tonumber(kept)",
			"return 0"), nil, []string{"Reply/LostOnAcquire"}},
		"fence that never grows":      {acquire("local digits", "fence = 1\nlocal digits"), nil, []string{"Fence/GrowsOverGrants"}},
		"fence that goes down":        {acquire("local digits", "fence = 2^52 - fence\nlocal digits"), nil, []string{"Fence/GrowsOverGrants", "Fence/SurvivesRestart"}},
		"case ignored":                {nil, renames(strings.ToLower), []string{"Keys/OddOnesNeverCollide"}},
		"spaces trimmed":              {nil, renames(strings.TrimSpace), []string{"Keys/OddOnesNeverCollide"}},
		"cut at 255 bytes":            {nil, renames(func(k string) string { return k[:min(len(k), 255)] }), []string{"Keys/OddOnesNeverCollide"}},
		"several keys one by one":     {nil, faulty.TakesOneByOne, []string{"Multi/AllOrNone"}},
		"silence taken for an answer": {nil, faulty.Guesses, []string{"Reply/NeverComes", "Reply/LostOnRenew", "Reply/LostOnRelease"}},
	}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	locktest.Subtests(t, mutants(t), func(t *testing.T, m mutant) {
		locktest.WantFailing(t, target{Target: redistest.Shared(t), scripts: m.scripts, broken: m.broken}.open, promises, m.caught...)
	})
}

// A Store that rounds a TTL breaks the contract.
func TestContract_NoticesRoundedTTLs(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	locktest.WantFailing(t, func(t testing.TB) locktest.Backend {
		b := target{Target: redistest.Shared(t)}.open(t)
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
	honest := target{Target: redistest.Shared(t)}.open
	without := func(change func(*locktest.Promises)) locktest.Promises {
		p := promises
		change(&p)
		return p
	}
	locktest.WantFailing(t, honest, without(func(p *locktest.Promises) { p.Expires = false }), "Expires/Not")
	locktest.WantFailing(t, honest, without(func(p *locktest.Promises) { p.Fences, p.FencePersists = false, false }), "Fence/None")
	locktest.WantFailing(t, honest, without(func(p *locktest.Promises) { p.FencePersists = false }), "Fence/DoesNotSurviveRestart")
	locktest.WantFailing(t, honest, without(func(p *locktest.Promises) { p.MultiKey = false }), "Multi/Refused")

	forgetful := func(t testing.TB) locktest.Backend {
		b := honest(t)
		b.Restartable = func() (locktest.Backend, func()) {
			s := servertest.Start(t, daemon.Redis("--appendonly", "no"))
			return target{Target: redistest.Target{URL: "redis://" + s.Addr}}.open(t), s.Restart
		}
		return b
	}
	locktest.WantFailing(t, forgetful, promises, "Fence/SurvivesRestart")
}

// With FIFO promised, a queue passes and a stack fails.
func TestContract_NoticesTheOrderOfGrants(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	inOrder := func(pick func(int) int) locktest.Open {
		return func(t testing.TB) locktest.Backend {
			q := &queue{pick: pick}
			b := target{Target: redistest.Shared(t), broken: func(s locking.Store) locking.Store { return queued{s, q} }}.open(t)
			b.Waiting = func(string) int { return q.count() }
			return b
		}
	}
	p := promises
	p.FIFO = true
	const check = "FIFO/GrantsInOrderOfArrival"
	if failures := locktest.Failing(t, inOrder(func(int) int { return 0 }), p, check); len(failures) > 0 {
		t.Errorf("a FIFO queue fails: %q", failures)
	}
	locktest.WantFailing(t, inOrder(func(n int) int { return n - 1 }), p, check)
}
