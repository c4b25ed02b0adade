package redislock

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest"
)

type closing interface {
	locking.Store
	Close()
}

// kinds are the stores of this package beside Store, as the contract opens them. The
// contract tests the exclusive side of a read-write lock, and a semaphore of one permit.
var kinds = map[string]func(redis.UniversalClient, time.Duration, Options) (closing, error){
	"waiter": func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) {
		return NewWaiter(c, ttl, o)
	},
	"fair": func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) {
		return NewFair(c, ttl, o)
	},
	"writer": func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) {
		rw, err := NewRW(c, ttl, o)
		if err != nil {
			return nil, err
		}
		return rw.Write, nil
	},
	"permit": func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) {
		return NewSemaphore(c, ttl, 1, o)
	},
}

// promisesOf are the promises of a kind. A semaphore does not fence.
func promisesOf(kind string) locktest.Promises {
	p := promises
	p.FIFO = kind != "store" && kind != "waiter"
	if kind == "permit" {
		p.Fences, p.FencePersists = false, false
	}
	return p
}

// waiting is a locktest.Backend.Waiting: the tickets of waiters, which are positive.
func (g target) waiting(t testing.TB) func(key string) int {
	client, s := connect(t, g.url, time.Minute), Store{prefix: g.options.Prefix, tag: g.options.HashTag}
	return func(key string) int {
		n := 0
		for _, space := range []string{"queue:", "permits:"} {
			n += int(client.ZCount(t.Context(), s.scope(key)+space+key, "1e14", "+inf").Val())
		}
		return n
	}
}

func TestContract_Waiter(t *testing.T)    { contract(t, "waiter") }
func TestContract_Fair(t *testing.T)      { contract(t, "fair") }
func TestContract_RW(t *testing.T)        { contract(t, "writer") }
func TestContract_Semaphore(t *testing.T) { contract(t, "permit") }

func contract(t *testing.T, kind string) {
	t.Parallel()
	locktest.Run(t, target{url: redisURL(t), kind: kinds[kind]}.open, promisesOf(kind))
}

// contracts runs the contract of several kinds, two at once: they share the servers, and their checks have time
// limits. A store is of no kind.
func contracts(t *testing.T, g target, names ...string) {
	locktest.SideBySide(2, names, func(kind string) {
		g := g
		g.kind = kinds[kind]
		t.Run(kind, func(t *testing.T) { locktest.Run(t, g.open, promisesOf(kind)) })
	})
}

// edit makes a wrong variant of q: pieces of its code, each of which occurs once, are replaced.
func edit(t testing.TB, q *QueueStore, change ...string) {
	t.Helper()
	s := original
	for ; len(change) > 0; change = change[2:] {
		found := 0
		for _, text := range []*string{&s.open, &s.close, &s.queue, &s.take, &s.keep, &s.leave} {
			found += strings.Count(*text, change[0])
			*text = strings.ReplaceAll(*text, change[0], change[1])
		}
		if found != 1 {
			t.Fatalf("%q occurs %d times in the scripts, want 1", change[0], found)
		}
	}
	q.scripts = s.scripts()
}

// The suite notices wrong variants of the scripts of the queue.
func TestContract_NoticesBrokenQueues(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	const (
		own, fair   = "Own/ReleaseAndRenewTouchOnlyTheirOwn", "FIFO/GrantsInOrderOfArrival"
		excludes    = "Exclusion/SeveralStores"
		whoseTicket = "if not ticket or tonumber(ticket) ~= -tonumber(ARGV[5]) then return 0 end"
	)
	type mutation struct{ change, caught []string }
	locktest.Subtests(t, map[string]mutation{
		"grants held keys":             {[]string{"if not holder or number > 0 then return true end", "do return true end"}, []string{excludes, own}},
		"each key is free":             {[]string{"redis.call('EXISTS', KEYS[1]) == 0", "true"}, []string{excludes, own}},
		"the last comes first":         {[]string{"math.max(number, microseconds, (tonumber(last) or 0) + 1)", "4e15 - microseconds"}, []string{fair}},
		"all keys or the first":        {[]string{"granted = false end\nend", "granted = i > 1 end\nend"}, []string{"Multi/AllOrNone"}},
		"the only owner stays":         {[]string{"return redis.call('DEL', KEYS[1])", "return 1"}, []string{"Do/PanicFreesTheKeys"}},
		"release does nothing":         {[]string{"held = held + 1 end\n    remove(i, owner)", "held = held + 1 end"}, []string{"Multi/AllOrNone"}},
		"renew without the grant":      {[]string{whoseTicket, ""}, []string{own, "Lost/StaysLost"}},
		"renew does nothing":           {[]string{"redis.call('ZADD', queue[i], now + ARGV[6], '~' .. owner)", ""}, []string{"Renew/KeepsTheKeysPastTheTTL"}},
		"no TTL":                       {[]string{lateLeave, "", "redis.call('PEXPIRE', KEYS[1], ttl)", ""}, []string{"Expires/FreesTheKeysAfterUntil"}},
		"own request forgotten":        {[]string{"if held == keys then", "if held == keys then\n  return 0\nelseif false then"}, []string{"Reply/LostOnAcquire"}},
		"fence that never grows":       {[]string{"local digits = string.format('%.0f', fence)", "fence = 1\n  local digits = '1'"}, []string{"Fence/GrowsOverGrants"}},
		"fence that goes down":         {[]string{"local digits = string.format('%.0f', fence)", "fence = 2^52 - fence\n  local digits = string.format('%.0f', fence)"}, []string{"Fence/GrowsOverGrants"}},
		"fence of several keys is low": {[]string{"local digits = string.format('%.0f', number)", "local digits = '1'"}, []string{"Multi/FenceAboveThoseOfEachKey"}},
		"the queue ends early":         {[]string{"redis.call('PEXPIRE', KEYS[1], ttl)", "redis.call('PEXPIRE', KEYS[1], 0)"}, []string{own}},
	}, func(t *testing.T, m mutation) {
		broken := target{url: redisURL(t), kind: func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) {
			q, err := NewFair(c, ttl, o)
			if err == nil {
				edit(t, q, m.change...)
			}
			return q, err
		}}
		locktest.WantFailing(t, broken.open, promisesOf("fair"), m.caught...)
	})
}
