// SPDX-License-Identifier: MIT

package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/driver"
	"shop/locking/locktest"
	"shop/locking/redislock"
	"shop/locking/redislock/redistest"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	servertest.Roles(map[string]func(args []string) error{"wait": func(args []string) error { return wait(args[0]) }})
	goleak.VerifyTestMain(m)
}

// kind is a store of this package, as the contract opens it. The
// contract tests the exclusive side of a read-write lock, and a semaphore of one permit.
type kind struct {
	mode, space string
	limit       int
	promises    locktest.Promises
}

var fences = locktest.Promises{Expires: true, Fences: true, FencePersists: true, MultiKey: true, FIFO: true, MinTTL: redislock.TTLMin}

var kinds = map[string]kind{
	"fair":   {exclusive, "queue", holdersMax, fences},
	"writer": {exclusive, "queue", holdersMax, fences},
	"permit": {shared, "permits", 1, locktest.Promises{Expires: true, MultiKey: true, FIFO: true, MinTTL: redislock.TTLMin}},
}

// open returns a locktest.Open of a kind on a kind of Redis. change makes the driver wrong; nil: it is right.
func (k kind) open(on redistest.Target, change func(*queue)) locktest.Open {
	return func(t testing.TB) locktest.Backend {
		t.Helper()
		var o redislock.Options
		b := on.Backend(t, tuned, func(client redis.UniversalClient, ttl time.Duration, prefix string) (locking.Store, error) {
			o = redislock.Options{Prefix: prefix, HashTag: on.Tag}
			q, err := newQueue(client, ttl, o, k.mode, k.space, k.limit)
			if err != nil {
				return nil, err
			}
			if change != nil {
				change(q)
			}
			store, err := driver.New(q, settings(q))
			if err == nil {
				t.Cleanup(store.Close)
			}
			return store, err
		})
		client := on.Client(t, tuned(time.Minute))
		b.Waiting = func(key string) int { // the tickets of waiters, which are positive
			return int(client.ZCount(t.Context(), o.Scope(key)+k.space+":"+key, "1e14", "+inf").Val())
		}
		return b
	}
}

func tuned(ttl time.Duration) func(*redis.UniversalOptions) *redis.UniversalOptions {
	return func(o *redis.UniversalOptions) *redis.UniversalOptions { return redislock.Tune(o, ttl) }
}

func contracts(t *testing.T, on redistest.Target) {
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) { locktest.Run(t, k.open(on, nil), k.promises) })
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	contracts(t, redistest.Shared(t))
}

func TestCluster_Contract(t *testing.T) {
	locktest.Slow(t, "a Redis Cluster")
	g, _ := redistest.ThreeNodes(t)
	contracts(t, g)
}

func TestSentinel_Contract(t *testing.T) {
	locktest.Slow(t, "a Redis with Sentinels")
	g, _ := redistest.Sentinels(t)
	contracts(t, g)
}

// edit makes a wrong variant of q: pieces of its code, each of which occurs once, are replaced.
func edit(t testing.TB, q *queue, change ...string) {
	t.Helper()
	s := original
	for ; len(change) > 0; change = change[2:] {
		found := 0
		for _, text := range []*string{&s.queue, &s.take, &s.keep, &s.leave} {
			found += strings.Count(*text, change[0])
			*text = strings.ReplaceAll(*text, change[0], change[1])
		}
		if found != 1 {
			t.Fatalf("%q occurs %d times in the scripts, want 1", change[0], found)
		}
	}
	q.scripts = s.scripts()
}

// The suite notices wrong variants of the scripts.
func TestContract_NoticesBrokenStores(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	t.Parallel()
	const (
		own, fair   = "Own/ReleaseAndRenewTouchOnlyTheirOwn", "FIFO/GrantsInOrderOfArrival"
		excludes    = "Exclusion/SeveralStores"
		whoseTicket = "if not ticket or tonumber(ticket) ~= -tonumber(ARGV[5]) then return 0 end"
	)
	type mutation struct{ change, caught []string }
	locktest.Subtests(t, map[string]mutation{
		"grants held keys":        {[]string{"if not holder or number > 0 then return true end", "do return true end"}, []string{excludes, own}},
		"the last comes first":    {[]string{"math.max(number, microseconds, (tonumber(last) or 0) + 1)", "4e15 - microseconds"}, []string{fair}},
		"all keys or the first":   {[]string{"granted = false end\nend", "granted = i > 1 end\nend"}, []string{"Multi/AllOrNone"}},
		"release does nothing":    {[]string{"held = held + 1 end\n    remove(i, owner)", "held = held + 1 end"}, []string{"Multi/AllOrNone"}},
		"renew without the grant": {[]string{whoseTicket, ""}, []string{own, "Lost/StaysLost"}},
		"renew does nothing":      {[]string{"redis.call('ZADD', queue[i], now + ARGV[6], '~' .. owner)", ""}, []string{"Renew/KeepsTheKeysPastTheTTL"}},
		"no TTL":                  {[]string{lateLeave, ""}, []string{"Expires/FreesTheKeysAfterUntil"}},
		"own request forgotten":   {[]string{"if held == keys then", "if held == keys then\n  return 0\nelseif false then"}, []string{"Reply/LostOnAcquire"}},
		"fence that never grows":  {[]string{"local digits = string.format('%.0f', number)", "local digits = '1'"}, []string{"Fence/GrowsOverGrants", "Multi/FenceAboveThoseOfEachKey"}},
	}, func(t *testing.T, m mutation) {
		k := kinds["fair"]
		locktest.WantFailing(t, k.open(redistest.Shared(t), func(q *queue) { edit(t, q, m.change...) }), k.promises, m.caught...)
	})
}

// wait waits for the key k of a fair lock until the process is killed.
func wait(prefix string) error {
	client, err := redislock.Connect(os.Getenv("SHOP_REDIS_URL"), time.Minute)
	if err != nil {
		return err
	}
	fair, err := NewFair(client, time.Minute, redislock.Options{Prefix: prefix})
	if err != nil {
		return err
	}
	_, err = fair.Acquire(context.Background(), "k")
	return fmt.Errorf("granted: %w", err)
}

// The first waiters are killed: the one behind them is granted the key when their tickets
// have ended, all at the same time.
func TestFair_KilledWaitersDelayTheNextOnce(t *testing.T) {
	locktest.Slow(t, "processes")
	t.Parallel()
	s := newSteps(t, 30*time.Second, nil)
	s.poll = poll
	rw := s.rw(time.Minute)
	rw.Write.ticketTTL = ticketTTL
	held := s.take(rw.Write, "k")
	var processes []*exec.Cmd
	for i := range 3 {
		cmd := servertest.Process(t, "wait", s.prefix)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, cmd)
		s.eventually("the process waits", func() bool { return len(s.tickets(rw.Write, "k")) == i+1 })
	}
	next := s.wait(rw.Write, "k")
	for _, cmd := range processes {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	died := time.Now()
	s.release(rw.Write, held)
	s.busy(rw.Write, "k")
	s.release(rw.Write, s.granted("the living waiter", next))
	if took := time.Since(died); s.err != nil || took > 2*ticketTTL {
		t.Errorf("%v after %v", s.err, took)
	}
}

// While a slot of a Cluster moves, waiters keep on asking, and no other process is granted their keys.
func TestCluster_WaitersOfAMovingSlotWait(t *testing.T) {
	locktest.Slow(t, "starts a Cluster")
	t.Parallel()
	servers := redistest.Cluster(t, 2)
	nodes := [2]redistest.Node{redistest.NodeAt(t, servers[0].Addr), redistest.NodeAt(t, servers[1].Addr)}
	on := redistest.Target{URL: "redis://" + servers[0].Addr, Cluster: true}
	o := redislock.Options{HashTag: redistest.Tag, Prefix: redistest.Prefix(t, on.URL)}
	var inside, grants atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 3)
	for range cap(done) {
		fair, err := NewFair(on.Client(t, tuned(10*time.Second)), 10*time.Second, o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(fair.Close)
		go func() {
			for ctx.Err() == nil {
				err := locking.Do(ctx, fair, locking.Options{MaxWait: 30 * time.Second}, []string{"k"}, func(context.Context, locking.Lease) error {
					defer inside.Add(-1)
					grants.Add(1)
					if inside.Add(1) > 1 {
						return errors.New("two holders")
					}
					return nil
				})
				if err != nil && ctx.Err() == nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	progress := func(when string) {
		t.Helper()
		before := grants.Load()
		locktest.Eventually(t, "grants "+when, func() bool { return grants.Load() > before+3 })
	}
	slot := int(nodes[0].ClusterKeySlot(t.Context(), redistest.Tag).Val())
	from, to := nodes[0], nodes[1]
	if !redistest.Owns(t, from, slot) {
		from, to = to, from
	}
	progress("before")
	to.Must("CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID)
	from.Must("CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID)
	from.MoveKeys(slot, to)
	from.Must("CLUSTER", "SETSLOT", slot, "NODE", to.ID)
	to.Must("CLUSTER", "SETSLOT", slot, "NODE", to.ID)
	progress("after the slot has moved")
	stop()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// waitFor starts to wait for the key k, and sends who it was when it was granted.
func waitFor(t *testing.T, who string, s locking.Store, granted chan<- string) {
	go func() {
		l, err := locking.Acquire(t.Context(), s, locking.Options{}, "k")
		if err != nil {
			granted <- err.Error()
			return
		}
		granted <- who
		_ = s.Release(context.WithoutCancel(t.Context()), l)
	}()
}

// A request of a waiter that has no answer is sent again, and finds its ticket where it was.
func TestFair_ALostAnswerLeavesTheTicket(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	b := kinds["fair"].open(redistest.Shared(t), nil)(t)
	holder, err := b.Open(ttl)
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Open(ttl)
	if err != nil {
		t.Fatal(err)
	}
	first, granted := b.Proxied(ttl), make(chan string, 2)
	held := locktest.Taken(t, holder, "k")
	waitFor(t, "first", first.Store, granted)
	locktest.Eventually(t, "the first waits", func() bool { return b.Waiting("k") == 1 })
	first.Lose(1)
	locktest.Eventually(t, "an answer is lost", func() bool { return first.Lost() == 1 })
	waitFor(t, "second", other, granted)
	locktest.Eventually(t, "the second waits", func() bool { return b.Waiting("k") == 2 })
	<-time.After(4 * poll) // the first has sent later requests
	locktest.Released(t, holder, held)
	if got := <-granted; got != "first" {
		t.Errorf("granted to %s", got)
	}
	<-granted
}

// A ticket in the queue of a process that has closed its Store would delay the others for three seconds.
func TestFair_CloseLeavesTheQueue(t *testing.T) {
	t.Parallel()
	b := kinds["fair"].open(redistest.Shared(t), nil)(t)
	holder, err := b.Open(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	waiter, err := b.Open(time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	held, granted := locktest.Taken(t, holder, "k"), make(chan string, 1)
	waitFor(t, "the waiter", waiter, granted)
	locktest.Eventually(t, "it waits", func() bool { return b.Waiting("k") == 1 })
	waiter.(*driver.Store).Close()
	locktest.Eventually(t, "its ticket is removed", func() bool { return b.Waiting("k") == 0 })
	if got := <-granted; got == "the waiter" {
		t.Error("granted by a closed Store")
	}
	locktest.Released(t, holder, held)
}
