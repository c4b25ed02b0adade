// SPDX-License-Identifier: MIT

package redislock

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
	"shop/locking/locktest/faulty"
	"shop/locking/redislock/redistest"
)

// add adds a number to a counter, and returns the sum.
const add = `return redis.call('INCRBY', KEYS[1], ARGV[1])`

// newGuarded makes a client, and the names of a counter and of its guard.
func newGuarded(t testing.TB) (c *redis.Client, counter, guard string) {
	t.Helper()
	name := redistest.Prefix(t, redistest.URL(t)) + "{account}" // the hash tag, which a Cluster needs
	return connect(t, redistest.URL(t), 10*time.Second), name, name + "fence"
}

func TestGuard_RefusesTheOldHolderAndAcceptsThePresentAndTheNext(t *testing.T) {
	t.Parallel()
	c, counter, guard := newGuarded(t)
	g, sum := NewGuard(add), int64(0)
	const old, present, next, greatest = 5, 7, 10, 1<<63 - 1
	for _, step := range []struct {
		fence locking.Fence
		want  error
	}{
		{old, nil},
		{present, nil},
		{old, locking.ErrStale}, // continues after a pause
		{present, nil},          // writes again
		{next, nil},             // has more digits
		{present, locking.ErrStale},
		{next, nil},
		{greatest - 1, nil}, // the same number as the next to Lua
		{greatest, nil},
		{greatest - 1, locking.ErrStale},
	} {
		got, err := g.Run(t.Context(), c, guard, step.fence, []string{counter}, 1)
		if !errors.Is(err, step.want) {
			t.Errorf("fence %d: %v, want %v", step.fence, err, step.want)
		}
		if err == nil {
			if sum++; got != sum {
				t.Errorf("fence %d: got %v, want %d", step.fence, got, sum)
			}
		}
	}
	if n, err := c.Get(t.Context(), counter).Int64(); err != nil || n != sum {
		t.Errorf("the counter is %d, want %d: %v", n, sum, err)
	}
	if ttl := c.TTL(t.Context(), guard).Val(); ttl != -1 {
		t.Errorf("the guard has the TTL %v (-1: none)", ttl)
	}
}

// wrongScripts are variants of guard.lua with one mistake, and the checks that find it.
func TestGuard_WrongScriptsLetAnOldHolderWrite(t *testing.T) {
	t.Parallel()
	refuse := "return redis.error_reply('STALE fence ' .. fence .. ', seen ' .. seen)"
	for name, m := range map[string]struct {
		script       string
		newer, older locking.Fence
	}{
		"compares text only": {faulty.Edited(t, guardLua, "#seen > #fence or #seen == #fence and seen > fence", "seen > fence") + add, 10, 9},
		"compares numbers":   {faulty.Edited(t, guardLua, "#seen > #fence or #seen == #fence and seen > fence", "(tonumber(seen) or 0) > tonumber(fence)") + add, 1<<63 - 1, 1<<63 - 2},
		"stores no fence":    {faulty.Edited(t, guardLua, "redis.call('SET', guard, fence)", "") + add, 7, 5},
		"checks after the write": {
			strings.Replace(add, "return", "local sum =", 1) + "\n" + faulty.Edited(t, guardLua, "table.remove(KEYS), table.remove(ARGV)", "KEYS[2], ARGV[2]") + "return sum", 7, 5,
		},
		"goes on": {faulty.Edited(t, guardLua, refuse, "") + add, 7, 5},
	} {
		c, counter, guard := newGuarded(t)
		wrong := &Guard{redis.NewScript(m.script)}
		if _, err := wrong.Run(t.Context(), c, guard, m.newer, []string{counter}, 1); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, _ = wrong.Run(t.Context(), c, guard, m.older, []string{counter}, 1)
		if n, _ := c.Get(t.Context(), counter).Int64(); n != 2 {
			t.Errorf("%s: the counter is %d, want 2: the old holder's write must pass, or this variant shows nothing", name, n)
		}
	}
}

// A, the old holder, is late; B, the new one, is not. A's check and A's write are two requests.
func TestGuard_CheckedByTheClientLetsAnOldHolderWrite(t *testing.T) {
	t.Parallel()
	c, counter, guard := newGuarded(t)
	check := func(fence int64) {
		t.Helper()
		if seen, err := c.Get(t.Context(), guard).Int64(); err == nil && seen > fence {
			t.Fatalf("fence %d is older than %d", fence, seen)
		}
	}
	write := func(fence int64, text string) {
		c.Set(t.Context(), guard, fence, 0)
		c.Set(t.Context(), counter, text, 0)
	}
	check(5) // A
	check(6) // B
	write(6, "B's")
	write(5, "A's")
	if got := c.Get(t.Context(), counter).Val(); got != "A's" {
		t.Errorf("got %q: A must overwrite B, or the test shows nothing", got)
	}
}

func TestGuard_ReportsWhatTheScriptReports(t *testing.T) {
	t.Parallel()
	c, counter, guard := newGuarded(t)
	run := func(script string, fence locking.Fence) (any, error) {
		return NewGuard(script).Run(t.Context(), c, guard, fence, []string{counter})
	}
	if got, err := run(`return nil`, 1); got != nil || err != nil {
		t.Errorf("nil: got %v, %v", got, err)
	}
	if got, err := run(`return #KEYS .. ' ' .. #ARGV`, 1); got != "1 0" || err != nil {
		t.Errorf("the script sees %v keys and arguments, %v; want 1 and 0", got, err)
	}
	_, err := run(`return redis.call('INCR', KEYS[1], 'wrong')`, 1)
	if err == nil || errors.Is(err, locking.ErrStale) || errors.Is(err, locking.ErrOutcomeUnknown) {
		t.Errorf("an error of the script: got %v", err)
	}
	for _, fence := range []locking.Fence{0, -1} {
		if _, err := run(add, fence); !errors.Is(err, locking.ErrUnfenced) {
			t.Errorf("fence %d: %v, want ErrUnfenced", fence, err)
		}
	}
	if _, err := NewGuard(add).Run(t.Context(), c, "", 1, nil); !errors.Is(err, locking.ErrKey) {
		t.Errorf("no name: %v, want ErrKey", err)
	}
	if got := c.Exists(t.Context(), counter).Val(); got != 0 {
		t.Error("a refused call has written")
	}
}

// The script ran, and its answer is lost: a repetition by the same holder passes.
func TestGuard_NoAnswerIsUnknown(t *testing.T) {
	t.Parallel()
	_, counter, guard := newGuarded(t)
	p := redistest.Proxy(t, redistest.Host(t, redistest.URL(t)))
	c := connect(t, "redis://"+p.Addr, 2*time.Second)
	g := NewGuard(add)
	if _, err := g.Run(t.Context(), c, guard, 5, []string{counter}, 1); err != nil { // loads the script
		t.Fatal(err)
	}
	p.Lose(1)
	_, err := g.Run(t.Context(), c, guard, 5, []string{counter}, 1)
	if !errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, locking.ErrStale) {
		t.Errorf("got %v, want ErrOutcomeUnknown", err)
	}
	if sum, err := g.Run(t.Context(), c, guard, 5, []string{counter}, 1); err != nil || fmt.Sprint(sum) != "3" {
		t.Errorf("the repetition: got %v, %v; want 3", sum, err)
	}
}
