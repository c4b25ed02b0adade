package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

// mutant is a wrong variant of this store, and the checks that must notice it.
type mutant struct {
	broken func(*Store) locking.Store
	caught []string
}

// script makes a mutant of one of the Lua scripts.
func script(change func(*scripts)) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		change(&s.scripts)
		return s
	}
}

func mutants(t testing.TB) map[string]mutant {
	plainDel := redis.NewScript(`local n = 0; for i = 1, #KEYS do n = n + redis.call('DEL', KEYS[i]) end; return n`)
	acquire := func(from, to string) func(*Store) locking.Store {
		return script(func(s *scripts) { s.acquire = edited(t, acquireLua, from, to) })
	}
	renew := func(from, to string) func(*Store) locking.Store {
		return script(func(s *scripts) { s.renew = edited(t, renewLua, from, to) })
	}
	withoutTTL := strings.Replace(acquireLua, "redis.call('PEXPIRE', KEYS[i], ttl)", "", 1) // of a request that is sent twice
	own, compare := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "if redis.call('GET', KEYS[i]) ~= ARGV[1] then return 0 end"
	return map[string]mutant{
		"grants held keys":      {grantsHeldKeys, []string{"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", own, "Fence/GrowsOverGrants"}},
		"release by plain DEL":  {script(func(s *scripts) { s.release = plainDel }), []string{own}},
		"release does nothing":  {anyStore(locktest.ReleasesNothing), []string{"Lost/StaysLost", "Do/PanicFreesTheKeys", "Multi/AllOrNone"}},
		"renew without owner":   {renew(compare, "if not redis.call('GET', KEYS[i]) then return 0 end"), []string{own}},
		"renew, then compare":   {renew(compare, "redis.call('PEXPIRE', KEYS[i], ARGV[2])\n  "+compare), []string{"Own/RefusedRenewProlongsNothing"}},
		"renew re-creates":      {renew(compare, "if not redis.call('GET', KEYS[i]) then redis.call('SET', KEYS[i], ARGV[1]) end"), []string{"Lost/StaysLost"}},
		"renew does nothing":    {script(func(s *scripts) { s.renew = redis.NewScript(`return 1`) }), []string{"Renew/KeepsTheKeysPastTheTTL", "Lost/StaysLost"}},
		"no TTL":                {script(func(s *scripts) { s.acquire = edited(t, withoutTTL, ".. owner, 'PX', ttl)", ".. owner)") }), []string{"Expires/FreesTheKeysAfterUntil"}},
		"own request forgotten": {acquire("if holder ~= owner then", "if value then"), []string{"Reply/LostOnAcquire"}},
		"own request, new TTL forgotten": {acquire("for i = 1, locks do redis.call('PEXPIRE', KEYS[i], ttl) end\n  return tonumber(kept)",
			"return 0"), []string{"Reply/LostOnAcquire"}},
		"fence that never grows":      {acquire("local digits", "fence = 1\nlocal digits"), []string{"Fence/GrowsOverGrants"}},
		"fence that goes down":        {acquire("local digits", "fence = 2^52 - fence\nlocal digits"), []string{"Fence/GrowsOverGrants", "Fence/SurvivesRestart"}},
		"trust from the answer":       {trustsFromTheAnswer, []string{"Until/NeverBeyondRequestPlusTTL"}},
		"trust by the wall clock":     {anyStore(locktest.TrustsTheWallClock), []string{"Expires/FreesTheKeysAfterUntil"}},
		"ignores ctx":                 {anyStore(locktest.Deaf), []string{"Ctx/EndedBeforehandTakesNothing", "Ctx/ReturnsAtOnceWithoutAnAnswer"}},
		"case ignored":                {renames(strings.ToLower), []string{"Keys/OddOnesNeverCollide"}},
		"spaces trimmed":              {renames(strings.TrimSpace), []string{"Keys/OddOnesNeverCollide"}},
		"cut at 255 bytes":            {renames(func(k string) string { return k[:min(len(k), 255)] }), []string{"Keys/OddOnesNeverCollide"}},
		"any key is valid":            {renames(func(k string) string { return "k" + strings.ToValidUTF8(k[:min(len(k), 255)], "")[:0] }), []string{"Keys/InvalidAreErrKey"}},
		"several keys one by one":     {anyStore(locktest.TakesOneByOne), []string{"Multi/AllOrNone"}},
		"silence taken for an answer": {anyStore(locktest.Guesses), []string{"Reply/NeverComes", "Reply/LostOnRenew", "Reply/LostOnRelease"}},
	}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	url := redisURL(t)
	locktest.Subtests(t, mutants(t), func(t *testing.T, m mutant) {
		locktest.WantFailing(t, target{url: url, broken: m.broken}.open, promises, m.caught...)
	})
}

// A Store that rounds a TTL breaks the contract.
func TestContract_NoticesRoundedTTLs(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	locktest.WantFailing(t, func(t testing.TB) locktest.Backend {
		b := target{url: redisURL(t)}.open(t)
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
	honest := target{url: redisURL(t)}.open
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
			s := locktest.Start(t, locktest.Redis("--appendonly", "no"))
			return target{url: "redis://" + s.Addr}.open(t), s.Restart
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
			b := target{url: redisURL(t), broken: func(s *Store) locking.Store { return queued{s, q} }}.open(t)
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
