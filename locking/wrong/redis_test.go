// SPDX-License-Identifier: MIT

package wrong

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"shop/locking/locktest"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	goleak.VerifyTestMain(m)
}

// A, B and C are clients that want one key. The scripts name the holder by the letter.

// connect makes a client of the shared server, at addr if it is not empty.
func connect(t *testing.T, addr string) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(servertest.Env(t, "SHOP_REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	if addr != "" {
		o.Addr = addr
	}
	o.MaxRetries, o.ReadTimeout = -1, time.Minute
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newKey returns a key for this test alone.
func newKey(t *testing.T) string {
	t.Helper()
	key := "wrong-" + rand.Text()
	client := connect(t, "")
	t.Cleanup(func() { client.Del(context.Background(), key) }) // t.Context has ended by then
	return key
}

// halted makes a client whose command with this name stops before the server: reached is closed
// then, and resume lets it continue.
func halted(t *testing.T, command string) (client *redis.Client, p *servertest.Proxy, reached <-chan struct{}, resume func()) {
	t.Helper()
	p = servertest.NewProxy(t, connect(t, "").Options().Addr)
	there, resumed := make(chan struct{}), make(chan struct{})
	resume = sync.OnceFunc(func() { close(resumed) })
	t.Cleanup(resume) // before the proxy is closed, which waits for the command
	p.OnRequest(func(request []byte, _, _ net.Conn) bool {
		if bytes.Contains(request, []byte("\r\n"+command+"\r\n")) {
			close(there)
			<-resumed
		}
		return true
	})
	return connect(t, p.Addr), p, there, resume
}

// must returns the value of a request that succeeded.
func must[V any](t *testing.T) func(V, error) V {
	return func(value V, err error) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// wantHolder checks who holds key.
func wantHolder(t *testing.T, key, want string) {
	t.Helper()
	holder, err := connect(t, "").Get(t.Context(), key).Result()
	if err != nil && !errors.Is(err, redis.Nil) || holder != want {
		t.Fatalf("the key is held by %q, %v, want %q", holder, err, want)
	}
}

// wantForEver checks that key is held by A, which is gone, and will not expire.
func wantForEver(t *testing.T, key string) {
	t.Helper()
	b := connect(t, "")
	if left := b.PTTL(t.Context(), key).Val(); left != -1 {
		t.Errorf("the key expires in %v, want never (-1)", left)
	}
	if must[bool](t)(SetNX(t.Context(), b, key, "B")) {
		t.Error("B has got the key of A")
	}
	wantHolder(t, key, "A")
}

// C1: A dies.
func TestSetNX_CrashLeavesTheKeyTakenForEver(t *testing.T) {
	t.Parallel()
	key, a := newKey(t), connect(t, "")
	if !must[bool](t)(SetNX(t.Context(), a, key, "A")) {
		t.Fatal("A did not get the key")
	}
	_ = a.Close()
	wantForEver(t, key)
}

// C2: A dies between the two commands.
func TestSetNXThenExpire_CrashBetweenThemLeavesTheKeyTakenForEver(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	a, p, reached, _ := halted(t, "pexpire")
	result := make(chan error, 1)
	go func() {
		_, err := SetNXThenExpire(t.Context(), a, key, "A", time.Second)
		result <- err
	}()
	<-reached
	p.OnRequest(nil)
	p.Cut()
	if err := <-result; err == nil {
		t.Error("A did not die")
	}
	wantForEver(t, key)
}

// C2, healed: A is between the two commands when B sets an expiry. A believes that it has the
// key for an hour.
func TestSetNXOrHeal_LetsTheLockOfASlowHolderExpire(t *testing.T) {
	t.Parallel()
	key, b := newKey(t), connect(t, "")
	a, _, reached, resume := halted(t, "pexpire")
	taken := locktest.Beside(func() (bool, error) { return SetNXOrHeal(t.Context(), a, key, "A", time.Hour) })
	<-reached
	wantHolder(t, key, "A")
	if must[bool](t)(SetNXOrHeal(t.Context(), b, key, "B", time.Millisecond)) {
		t.Fatal("the key of A had no holder")
	}
	locktest.Eventually(t, "B has the key of A", func() bool { return must[bool](t)(SetNX(t.Context(), b, key, "B")) })
	resume()
	if !must[bool](t)((<-taken).Pair()) {
		t.Error("A knows that it has lost the key")
	}
	wantHolder(t, key, "B")
}

// C5: the lock of A expires, B gets it, and A releases.
func TestDel_DeletesTheNextHoldersLock(t *testing.T) {
	t.Parallel()
	key, server := newKey(t), connect(t, "")
	must[bool](t)(server.SetNX(t.Context(), key, "A", time.Millisecond).Result())
	locktest.Eventually(t, "B has the key", func() bool {
		return must[bool](t)(server.SetNX(t.Context(), key, "B", time.Minute).Result())
	})
	if err := Del(t.Context(), server, key); err != nil { // A
		t.Fatal(err)
	}
	if !must[bool](t)(server.SetNX(t.Context(), key, "C", time.Minute).Result()) {
		t.Error("C did not get the key of B")
	}
}

// C6: A has found its own lock, which expires before its DEL arrives.
func TestGetThenDel_DeletesTheNextHoldersLock(t *testing.T) {
	t.Parallel()
	key, server := newKey(t), connect(t, "")
	a, _, reached, resume := halted(t, "del")
	must[bool](t)(server.SetNX(t.Context(), key, "A", time.Minute).Result())
	result := make(chan error, 1)
	go func() { result <- GetThenDel(t.Context(), a, key, "A") }()
	<-reached
	must[bool](t)(server.PExpire(t.Context(), key, time.Millisecond).Result()) // the minute is over
	locktest.Eventually(t, "B has the key", func() bool {
		return must[bool](t)(server.SetNX(t.Context(), key, "B", time.Minute).Result())
	})
	resume()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	if !must[bool](t)(server.SetNX(t.Context(), key, "C", time.Minute).Result()) {
		t.Error("C did not get the key of B")
	}
}

// GET, then DEL: the deadline of A is past. B and C find that, and C is slower.
func TestTakeOver_LetsTwoWaitersIn(t *testing.T) {
	t.Parallel()
	key, b := newKey(t), connect(t, "")
	c, _, reached, resume := halted(t, "del")
	if !must[bool](t)(TakeOver(t.Context(), b, key, -time.Second)) {
		t.Fatal("A did not get the key")
	}
	second := locktest.Beside(func() (bool, error) { return TakeOver(t.Context(), c, key, time.Minute) })
	<-reached
	if !must[bool](t)(TakeOver(t.Context(), b, key, time.Minute)) {
		t.Fatal("B did not get the key")
	}
	if must[bool](t)(TakeOver(t.Context(), b, key, time.Minute)) {
		t.Error("the key of B has no holder")
	}
	resume()
	if !must[bool](t)((<-second).Pair()) {
		t.Error("C did not get the key of B")
	}
}

// A wall clock that is set back by an hour: A trusts its lock, which has expired, and which B
// holds.
func TestWallClock_SetBackProlongsTheTrust(t *testing.T) {
	t.Parallel()
	key, server := newKey(t), connect(t, "")
	now := time.Now
	a := WallClock{Server: server, TTL: 20 * time.Millisecond, Now: func() time.Time { return now() }}
	deadline, taken, err := a.Acquire(t.Context(), key, "A")
	if err != nil || !taken {
		t.Fatal(taken, err)
	}
	locktest.Eventually(t, "B has the key", func() bool {
		return must[bool](t)(server.SetNX(t.Context(), key, "B", time.Minute).Result())
	})
	now = func() time.Time { return time.Now().Round(0).Add(-time.Hour) }
	if !a.Trusts(deadline) {
		t.Error("A knows that its lock has expired")
	}
	wantHolder(t, key, "B")
}
