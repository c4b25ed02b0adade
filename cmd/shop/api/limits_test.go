// SPDX-License-Identifier: MIT

package api_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking"
	"shop/locking/combine"
	"shop/locking/idempotency"
)

// at runs f when a purchase reaches step.
func at(step inventory.Step, f func(context.Context)) option {
	return func(_ *api.Config, c *inventory.Config) {
		c.Failpoint = func(ctx context.Context, reached inventory.Step, _ string) {
			if reached == step {
				f(ctx)
			}
		}
	}
}

func TestLimits_EachClientHasARateOfItsOwn(t *testing.T) {
	t.Parallel()
	s := open(t, func(c *api.Config, _ *inventory.Config) { c.Limits.Rate = 0.001 })
	s.do("GET", "/v1/products", "").want(t, 200, "")
	limited := s.buy("k", "coffee", "1").want(t, 429, api.TypeRateLimited)
	if limited.header.Get("Retry-After") == "" {
		t.Error("429 without Retry-After")
	}
	s.do("GET", "/v1/products", "", s.as("bob")).want(t, 200, "")
	s.do("GET", "/livez", "").want(t, 200, "")
	s.do("GET", "/livez", "").want(t, 200, "")
}

func TestLimits_AFullServerRefusesAtOnceAndStaysLive(t *testing.T) {
	t.Parallel()
	s, orders := open(t).holdOrders(1)
	var first answer
	var wg sync.WaitGroup
	wg.Go(func() { first = s.buy("k1", "coffee", "1") })
	<-orders.in
	full := s.buy("k2", "coffee", "1", s.as("bob")).want(t, 503, api.TypeBusy)
	if full.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	if n := s.refused("at_work"); n != 1 {
		t.Errorf("%v counted", n)
	}
	s.do("GET", "/livez", "").want(t, 200, "")
	s.do("GET", "/readyz", "").want(t, 200, "")
	orders.letGo()
	wg.Wait()
	first.want(t, 201, "")
	s.do("GET", "/v1/products", "").want(t, 200, "")
}

func TestLimits_TheDeadlineEndsTheWork(t *testing.T) {
	t.Parallel()
	s := open(t, at(inventory.AfterGuard, func(ctx context.Context) { <-ctx.Done() }),
		func(c *api.Config, _ *inventory.Config) { c.Limits.Request = time.Second })
	start := time.Now()
	s.buy("k", "coffee", "1").want(t, 503, api.TypeBusy) // no COMMIT was sent
	if took := time.Since(start); took > 5*time.Second { // the default
		t.Errorf("it took %v", took)
	}
	s.wantStock("coffee", 100)
}

func TestLimits_APanicIsA500WithAFixedText(t *testing.T) {
	t.Parallel()
	var boom sync.Once
	s := open(t, at(inventory.AfterGuard, func(context.Context) {
		boom.Do(func() { panic("secret-of-the-house") })
	}))
	a := s.buy("k", "coffee", "1").want(t, 500, api.TypeInternal)
	if text := string(a.body); strings.Contains(text, "secret") || strings.Contains(text, "goroutine") || strings.Contains(text, ".go") {
		t.Errorf("it leaks: %s", text)
	}
	if log := s.log.String(); !strings.Contains(log, "secret-of-the-house") || !strings.Contains(log, "limits_test.go") {
		t.Errorf("the log has no panic with its stack: %s", log)
	}
	s.buy("k", "coffee", "1").want(t, 201, "") // the key is free, the row is free
	s.wantStock("coffee", 99)
}

// scripted replaces the domain, and returns errors that are rare in the real one.
type scripted struct {
	err error
}

func (s scripted) Buy(context.Context, inventory.Request, []inventory.Line) (inventory.Reply, error) {
	return inventory.Reply{}, s.err
}

func TestErrors_OfTheDomainReachTheClientAsTheirProblem(t *testing.T) {
	t.Parallel()
	const secret = "dial tcp 10.0.0.7:5432: password hunter2"
	for _, c := range []struct {
		err    error
		status int
		typ    api.ProblemType
	}{
		{locking.ErrOutcomeUnknown, 503, api.TypeOutcomeUnknown},
		{locking.ErrBusy, 503, api.TypeBusy},
		{combine.ErrClosed, 503, api.TypeBusy},
		{locking.ErrLost, 503, api.TypeLost},
		{idempotency.ErrInProgress, 409, api.TypeInProgress},
		{context.DeadlineExceeded, 504, api.TypeTimeout},
		{errors.New("a bug"), 500, api.TypeInternal},
	} {
		t.Run(c.err.Error(), func(t *testing.T) {
			s := open(t, func(front *api.Config, _ *inventory.Config) {
				front.Orders = selling(scripted{err: fmt.Errorf("%s: %w", secret, c.err)})
			})
			a := s.buy("k", "coffee", "1").want(t, c.status, c.typ)
			if strings.Contains(string(a.body), "hunter2") {
				t.Errorf("it leaks: %s", a.body)
			}
			if wait := a.header.Get("Retry-After") != ""; wait != (c.status == 503 || c.status == 409) {
				t.Errorf("Retry-After: %t", wait)
			}
			if n := strings.Count(s.log.String(), "hunter2"); n != 1 && c.status >= 500 {
				t.Errorf("logged %d times, want once: %s", n, s.log)
			}
		})
	}
}

// Concurrent requests with one key have one effect and get one answer.
func TestBuy_DuplicatesAtOnceAreOneOrder(t *testing.T) {
	t.Parallel()
	in, out := make(chan struct{}, 2), make(chan struct{})
	s := open(t, at(inventory.BeforeCommit, func(context.Context) {
		in <- struct{}{}
		<-out
	}))
	var answers [2]answer
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = s.buy("k", "coffee", "1") })
	}
	<-in
	close(out)
	wg.Wait()
	ids := map[uuid.UUID]bool{}
	for _, a := range answers {
		ids[a.want(t, 201, "").order(t).ID] = true
	}
	if len(ids) != 1 {
		t.Errorf("orders: %v", ids)
	}
	s.wantStock("coffee", 99)
}
