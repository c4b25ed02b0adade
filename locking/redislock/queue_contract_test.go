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
			n += int(client.ZCount(t.Context(), s.scope(key)+space+key, "(0", "+inf").Val())
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

// source is the Lua code of a QueueStore.
type source struct{ queue, take, keep, leave string }

var original = source{queueLua, takeLua, keepLua, leaveLua}

// edit makes a wrong variant of q: one piece of its code, which occurs once, is replaced.
func edit(t testing.TB, q *QueueStore, from, to string) {
	t.Helper()
	s, found := original, 0
	for _, text := range []*string{&s.queue, &s.take, &s.keep, &s.leave} {
		found += strings.Count(*text, from)
		*text = strings.ReplaceAll(*text, from, to)
	}
	if found != 1 {
		t.Fatalf("%q occurs %d times in the scripts, want 1", from, found)
	}
	q.scripts = newQueueScripts(s.queue, s.take, s.keep, s.leave)
}

// The suite notices wrong variants of the scripts of the queue, and of the Waiter.
func TestContract_NoticesBrokenQueues(t *testing.T) {
	t.Parallel()
	const (
		own, fair   = "Own/ReleaseAndRenewTouchOnlyTheirOwn", "FIFO/GrantsInOrderOfArrival"
		excludes    = "Exclusion/SeveralStores"
		whoseTicket = "if not ticket or tonumber(ticket) ~= -tonumber(ARGV[5]) then return 0 end"
	)
	type mutation struct {
		from, to string
		caught   []string
	}
	locktest.Subtests(t, map[string]mutation{
		"grants held keys":        {"if holders == 0 then return true end", "do return true end", []string{excludes, own}},
		"the last comes first":    {"math.max(tonumber(last) or 0, 0) + 1", "1000 - redis.call('ZCARD', KEYS[2 * i - 1])", []string{fair}},
		"all keys or the first":   {"granted = false end\nend", "granted = i > 1 end\nend", []string{"Multi/AllOrNone"}},
		"release does nothing":    {"held = held + 1 end\n    remove(i, owner)", "held = held + 1 end", []string{"Lost/StaysLost", "Do/PanicFreesTheKeys", "Multi/AllOrNone"}},
		"renew without the grant": {whoseTicket, "", []string{own, "Lost/StaysLost"}},
		"renew does nothing":      {"stay(ARGV[6])", "", []string{"Renew/KeepsTheKeysPastTheTTL"}},
		"no TTL":                  {"for _, who in ipairs(late) do remove(i, who) end", "", []string{"Expires/FreesTheKeysAfterUntil"}},
		"own request forgotten":   {"if held == keys then", "if held == keys then\n  return 0\nelseif false then", []string{"Reply/LostOnAcquire"}},
		"fence that never grows":  {"local digits = ", "number = 1\n  local digits = ", []string{"Fence/GrowsOverGrants"}},
		"fence that goes down":    {"local digits = ", "number = 2^52 - number\n  local digits = ", []string{"Fence/GrowsOverGrants"}},
		"the queue ends early":    {"redis.call('PEXPIREAT', KEYS[2 * i - 1], last)", "redis.call('PEXPIREAT', KEYS[2 * i - 1], 0)", []string{own}},
	}, func(t *testing.T, m mutation) {
		broken := target{url: redisURL(t), kind: func(c redis.UniversalClient, ttl time.Duration, o Options) (closing, error) {
			q, err := NewFair(c, ttl, o)
			if err == nil {
				edit(t, q, m.from, m.to)
			}
			return q, err
		}}
		locktest.WantFailing(t, broken.open, promisesOf("fair"), m.caught...)
	})
}
