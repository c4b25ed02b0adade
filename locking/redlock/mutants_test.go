package redlock

import (
	"context"
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

// changed makes a mutant with other commands.
func changed(change func(*commands)) func(*Store) locking.Store {
	return func(s *Store) locking.Store {
		change(&s.do)
		return s
	}
}

// lua makes a command of a wrong variant of a script.
func lua(t testing.TB, source, from, to string, args ...any) command {
	t.Helper()
	return script(locktest.Edited(t, source, from, to), args...)
}

var anyStore = locktest.Any[*Store]

func renames(encode func(string) string) func(*Store) locking.Store {
	return func(s *Store) locking.Store { return locktest.Renames(s, encode) }
}

func yes(context.Context, *redis.Client, lock) (bool, error) { return true, nil }

// fences counts its grants, and calls that a fence.
func fences(s *Store) locking.Store {
	grants := locking.Fence(0)
	return locktest.Twisted{Store: s, Try: func(ctx context.Context, keys []string) (locking.Lease, error) {
		lease, err := s.TryAcquire(ctx, keys...)
		if err == nil {
			grants++
			lease.Fence = grants
		}
		return lease, err
	}}
}

func mutants(t testing.TB) map[string]mutant {
	compare := "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end"
	renew := func(to string, ttl time.Duration) func(*Store) locking.Store {
		return changed(func(c *commands) { c.renew = lua(t, renewLua, compare, to, ttl.Milliseconds()) })
	}
	own, stays := "Own/ReleaseAndRenewTouchOnlyTheirOwn", "Lost/StaysLost"
	return map[string]mutant{
		"grants held keys": {
			func(s *Store) locking.Store { return locktest.GrantsHeldKeys(s, s.ttl) },
			[]string{"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores", own},
		},
		"a vote is granted twice": {
			changed(func(c *commands) { c.acquire = yes }), []string{"Exclusion/GoroutinesShareOneStore", "Exclusion/SeveralStores"},
		},
		"no TTL": {
			changed(func(c *commands) {
				c.acquire = func(ctx context.Context, server *redis.Client, l lock) (bool, error) {
					return server.SetNX(ctx, l.name, l.owner, 0).Result()
				}
			}), []string{"Expires/FreesTheKeysAfterUntil"},
		},
		"release by plain DEL":  {changed(func(c *commands) { c.release = lua(t, releaseLua, compare, "") }), []string{own}},
		"release does nothing":  {changed(func(c *commands) { c.release = yes }), []string{stays, "Do/PanicFreesTheKeys"}},
		"renew without owner":   {renew("if not redis.call('GET', KEYS[1]) then return 0 end", time.Minute), []string{own}},
		"renew, then compare":   {renew("redis.call('PEXPIRE', KEYS[1], ARGV[2])\n"+compare, time.Minute), []string{"Own/RefusedRenewProlongsNothing"}},
		"renew re-creates":      {renew("if not redis.call('GET', KEYS[1]) then redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) end", time.Second), []string{stays}},
		"renew does nothing":    {changed(func(c *commands) { c.renew = yes }), []string{"Renew/KeepsTheKeysPastTheTTL", stays}},
		"a fence of its own":    {fences, []string{"Fence/None"}},
		"the first key for all": {anyStore(locktest.TakesTheFirst), []string{"Multi/Refused"}},
		"trust from the answer": {
			func(s *Store) locking.Store { return locktest.TrustsFromTheAnswer(s, s.trust) }, []string{"Until/NeverBeyondRequestPlusTTL"},
		},
		"trust by the wall clock": {anyStore(locktest.TrustsTheWallClock), []string{"Expires/FreesTheKeysAfterUntil"}},
		"ignores ctx":             {anyStore(locktest.Deaf), []string{"Ctx/EndedBeforehandTakesNothing", "Ctx/ReturnsAtOnceWithoutAnAnswer"}},
		"case ignored":            {renames(strings.ToLower), []string{"Keys/OddOnesNeverCollide"}},
		"spaces trimmed":          {renames(strings.TrimSpace), []string{"Keys/OddOnesNeverCollide"}},
		"any key is valid":        {renames(func(string) string { return "k" }), []string{"Keys/InvalidAreErrKey"}},
		"silence taken for an answer": {
			anyStore(locktest.Guesses), []string{"Reply/NeverComes", "Reply/LostOnRenew", "Reply/LostOnRelease"},
		},
	}
}

// The suite notices each of these mutants, by the check that is meant for it.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	locktest.Subtests(t, mutants(t), func(t *testing.T, m mutant) {
		locktest.WantFailing(t, target{m.broken}.open, promises, m.caught...)
	})
}

// A Store that rounds a TTL breaks the contract.
func TestContract_NoticesRoundedTTLs(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	locktest.WantFailing(t, func(t testing.TB) locktest.Backend {
		b := target{}.open(t)
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
	with := func(change func(*locktest.Promises)) locktest.Promises {
		p := promises
		change(&p)
		return p
	}
	honest := target{}.open
	locktest.WantFailing(t, honest, with(func(p *locktest.Promises) { p.Expires = false }), "Expires/Not")
	locktest.WantFailing(t, honest, with(func(p *locktest.Promises) { p.MultiKey = true }), "Multi/AllOrNone")
	restartable := func(t testing.TB) locktest.Backend {
		b := honest(t)
		b.Restartable = func() (locktest.Backend, func()) { return b, func() {} }
		return b
	}
	locktest.WantFailing(t, restartable, with(func(p *locktest.Promises) { p.Fences = true }), "Fence/GrowsOverGrants")
}
