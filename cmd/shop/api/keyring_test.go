// SPDX-License-Identifier: MIT

package api_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/locktest"
)

// clock is a stopped clock for the keyring.
type clock struct{ passed atomic.Int64 }

func (c *clock) pass(d time.Duration) { c.passed.Add(int64(d)) }

func (s *shop) keyClock() *clock {
	c, start := &clock{}, time.Now()
	s.server.SetKeyClock(func() time.Time { return start.Add(time.Duration(c.passed.Load())) })
	return c
}

// unknown returns the header of a well-formed key that belongs to no client.
func unknown(n int) string { return fmt.Sprintf("Authorization: Bearer shop_%043d", n) }

// withKeyPool looks up keys through a separate pool, which waits for locks without a limit.
func withKeyPool(t *testing.T) option {
	return func(c *api.Config, _ *inventory.Config) {
		config := c.Pool.Config()
		config.ConnConfig.RuntimeParams["lock_timeout"] = "0"
		c.Pool = must(pgxpool.NewWithConfig(t.Context(), config))(t)
		t.Cleanup(c.Pool.Close)
	}
}

// lockClients blocks all key lookups until the returned function is called.
func (s *shop) lockClients() (unlock func()) {
	s.t.Helper()
	conn := must(pgx.ConnectConfig(s.t.Context(), s.pool.Config().ConnConfig))(s.t)
	if _, err := conn.Exec(s.t.Context(), `SET idle_in_transaction_session_timeout = 0; BEGIN; LOCK TABLE clients`); err != nil {
		s.t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { _ = conn.Close(context.Background()) })
	s.t.Cleanup(unlock)
	return unlock
}

func TestKeys_ARotatedKeyWorksForFiveSecondsAtMost(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *api.Config, _ *inventory.Config) { c.Limits.Failures = 0.001 }) // and a burst of 1
	time5 := s.keyClock()
	s.do("GET", "/v1/products", "").want(t, 200, "")
	key := must(api.RotateKey(t.Context(), s.pool, "alice"))(t)
	s.do("GET", "/v1/products", "", "Authorization: Bearer "+key).want(t, 200, "")
	time5.pass(5*time.Second - 1)
	s.do("GET", "/v1/products", "").want(t, 200, "")
	time5.pass(1)
	s.do("GET", "/v1/products", "").want(t, 401, api.TypeUnauthorized)
	s.do("GET", "/v1/products", "").want(t, 429, api.TypeRateLimited) // from now on it is an unknown key
	s.do("GET", "/v1/products", "", "Authorization: Bearer "+key).want(t, 200, "")
}

func TestKeys_ASlowLookupProlongsNoKey(t *testing.T) {
	t.Parallel()
	s := open(t, withKeyPool(t))
	c := s.keyClock()
	unlock := s.lockClients()
	var slow answer
	var wg sync.WaitGroup
	wg.Go(func() { slow = s.do("GET", "/v1/products", "") })
	locktest.Eventually(t, "the lookup is under way", func() bool { return s.front.Pool.Stat().AcquiredConns() == 1 })
	c.pass(5 * time.Second)
	unlock()
	wg.Wait()
	slow.want(t, 200, "")
	must(api.RotateKey(t.Context(), s.pool, "alice"))(t)
	s.do("GET", "/v1/products", "").want(t, 401, api.TypeUnauthorized)
}

func TestKeys_UnknownKeysOfOneAddressAreLimited(t *testing.T) {
	t.Parallel()
	s := open(t, withKeyPool(t), func(c *api.Config, _ *inventory.Config) { c.Limits.Failures = 0.001 }) // and a burst of 1
	c := s.keyClock()
	s.do("GET", "/v1/products", "").want(t, 200, "")
	asked := s.front.Pool.Stat().AcquireCount()
	const all = 100
	statuses := make(chan int, all)
	for n := range all {
		go func() { statuses <- s.do("GET", "/v1/products", "", unknown(n)).status }()
	}
	count := map[int]int{}
	for range all {
		count[<-statuses]++
	}
	lookups := int(s.front.Pool.Stat().AcquireCount() - asked)
	if lookups > api.LookupsMax || count[401] != lookups || count[429] != all-lookups {
		t.Errorf("%d lookups, answers %v", lookups, count)
	}
	if left := s.server.UnknownKeysLeft("127.0.0.1"); left > float64(1-lookups)+0.5 {
		t.Errorf("%v left after %d lookups", left, lookups)
	}
	if n := s.refused("unknown_keys"); int(n) != all-lookups {
		t.Errorf("%v counted", n)
	}
	if a := s.do("GET", "/v1/products", "", unknown(0)).want(t, 429, api.TypeRateLimited); a.header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	c.pass(time.Hour)
	s.do("GET", "/v1/products", "").want(t, 200, "") // a key that was valid is not limited
	s.do("GET", "/v1/products", "", "Authorization: Bearer nonsense").want(t, 401, api.TypeUnauthorized)
}

func TestKeys_UnknownKeysTakeNeitherRequestsInFlightNorConnections(t *testing.T) {
	t.Parallel()
	const all = 20
	s := open(t, withKeyPool(t), func(c *api.Config, _ *inventory.Config) { c.Limits.InFlight = all / 2 })
	s.do("GET", "/v1/products", "", s.as("bob")).want(t, 200, "") // bob's key is cached
	unlock := s.lockClients()
	statuses := make(chan int, all)
	for n := range all {
		go func() { statuses <- s.do("GET", "/v1/products", "", unknown(n)).status }()
	}
	locktest.Eventually(t, "all have come", func() bool { return s.inFlight() == all && s.front.Pool.Stat().AcquiredConns() >= api.LookupsMax })
	s.do("GET", "/v1/products", "", s.as("bob")).want(t, 200, "")
	if n := s.front.Pool.Stat().AcquiredConns(); n > api.LookupsMax {
		t.Errorf("%d connections look up unknown keys, want at most %d", n, api.LookupsMax)
	}
	unlock()
	for range all {
		if status := <-statuses; status != 401 {
			t.Errorf("an unknown key: %d", status)
		}
	}
}

// Concurrent requests with a new key cause at most LookupsMax lookups: those that wait use the entry.
func TestKeys_RequestsThatWaitForOneKeyShareItsLookup(t *testing.T) {
	t.Parallel()
	s := open(t, withKeyPool(t))
	unlock := s.lockClients()
	const all = 20
	statuses := make(chan int, all)
	for range all {
		go func() { statuses <- s.do("GET", "/v1/orders/1", "").status }()
	}
	asked := s.front.Pool.Stat().AcquireCount()
	locktest.Eventually(t, "all have come", func() bool { return s.inFlight() == all })
	unlock()
	for range all {
		if status := <-statuses; status != 400 { // it passed authentication, and needs no connection
			t.Error(status)
		}
	}
	if n := s.front.Pool.Stat().AcquireCount() - asked; n > api.LookupsMax {
		t.Errorf("%d lookups", n)
	}
}

// The address that a client claims to come from gives it no new limit.
func TestKeys_AForwardedAddressIsNotBelieved(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *api.Config, _ *inventory.Config) { c.Limits.Failures = 0.001 }) // and a burst of 1
	s.do("GET", "/v1/products", "", unknown(0)).want(t, 401, api.TypeUnauthorized)
	for _, claim := range []string{"X-Forwarded-For: 10.9.8.7", "X-Real-Ip: 10.9.8.7", "Forwarded: for=10.9.8.7", "X-User-Id: alice"} {
		s.do("GET", "/v1/products", "", unknown(1), claim).want(t, 429, api.TypeRateLimited)
	}
}
