// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/locking"
	"shop/locking/idempotency"
	"shop/locking/locktest"
	"shop/wallet"
)

// ErrKeyReused depends on the operation that has the key. While only the primary has that
// operation, it can be rolled back: the refusal waits for the majority.
func TestKey_OfAnotherRequestIsRefusedOnlyAfterAMajorityHasThatRequest(t *testing.T) {
	locktest.Slow(t, "it stops two members of a replica set")
	s := newSet(t)
	c := openAt(t, s.url, wallet.Config{})
	p := c.pair(100, 0)
	primary, others := s.roles()
	s.replicate(others, "off")
	req := newRequest(p.alice)
	first := locktest.Beside(func() (wallet.Reply, error) {
		return until(t.Context(), func() (wallet.Reply, error) { return c.Debit(t.Context(), req, p.a, 1) })
	})
	for s.operations(primary, c.db.Name()) < 1 {
		continue
	}
	before := s.lockID(primary, c.db.Name(), p.a)
	replica, _ := c.another(c.cfg)
	reused := req
	reused.Fingerprint[0]++
	second := locktest.Beside(func() (wallet.Reply, error) {
		return until(t.Context(), func() (wallet.Reply, error) { return replica.Debit(t.Context(), reused, p.a, 2) })
	})
	for s.lockID(primary, c.db.Name(), p.a) == before { // until it has committed that it read the key
		select {
		case o := <-second:
			t.Fatalf("%s, %v: answered when one of three members has it", o.Reply.Body, o.Err)
		default:
		}
	}
	s.replicate(others, "on")
	c.done((<-first).Pair())
	if o := <-second; !errors.Is(o.Err, idempotency.ErrKeyReused) {
		t.Errorf("%s, %v, want idempotency.ErrKeyReused", o.Reply.Body, o.Err)
	}
	c.mustHave(p.a, 99)
	c.mustHold()
}

// The turn passes to the next request when the primary has committed. That request may read
// what will be rolled back, but its reply waits for a majority. Here the primary dies with the
// operations of both requests: neither has a reply, both run again, and both are done once.
func TestCommit_NoQueuedRequestIsAnsweredByThePrimaryAlone(t *testing.T) {
	locktest.Slow(t, "it stops two members of a replica set")
	s := newSet(t)
	c := openAt(t, s.url, wallet.Config{})
	p := c.pair(100, 0)
	primary, others := s.roles()
	s.replicate(others, "off")
	var unknown atomic.Int64 // replies with an unknown outcome: the next request resolves it, but does not count that
	credit := func() <-chan outcome {
		req := newRequest(p.alice)
		return locktest.Beside(func() (wallet.Reply, error) {
			return until(t.Context(), func() (wallet.Reply, error) {
				reply, err := c.Credit(t.Context(), req, p.a, 30)
				if errors.Is(err, locking.ErrOutcomeUnknown) {
					unknown.Add(1)
				}
				return reply, err
			})
		})
	}
	answers := []<-chan outcome{credit(), credit()}
	for s.operations(primary, c.db.Name()) < len(answers) {
		continue
	}
	for _, answer := range answers {
		select {
		case o := <-answer:
			t.Fatalf("%s, %v: answered when one of three members has it", o.Reply.Body, o.Err)
		default:
		}
	}
	s.must(primary.Kill(t.Context()))
	s.replicate(others, "on")
	for _, answer := range answers {
		c.done((<-answer).Pair())
	}
	if a, r := c.events.Of(wallet.Ambiguous), c.events.Of(wallet.Resolved); a < 2 || int64(r)+unknown.Load() < 2 {
		t.Errorf("%d ambiguous, want at least 2; %d resolved and %d unknown, want at least 2 together", a, r, unknown.Load())
	}
	s.must(primary.Start(t.Context()))
	c.mustHave(p.a, 166)
	c.mustHold()
	s.mustAgree(c)
}

// failBehindTheTurn opens a replica whose first commit succeeds. The next ones, which wait for
// the majority, fail.
func (c *fixture) failBehindTheTurn(mode any, fault bson.D) (svc *wallet.Service, e *events) {
	var (
		client string
		first  sync.Once
	)
	svc, e, client = c.replica(wallet.Config{}, &event.CommandMonitor{Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
		if e.CommandName == "commitTransaction" {
			first.Do(func() { c.failCommand(client, mode, "commitTransaction", fault...) })
		}
	}})
	return svc, e
}

// What only the primary has may be rolled back, so no reply is sent for it.
func TestCommit_AfterLeavingTheQueueIsSentUntilItIsAnswered(t *testing.T) {
	c := open(t, wallet.Config{})
	for name, fault := range commitFaults {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			c := c.in(t)
			p := c.pair(100, 0)
			svc, events := c.failBehindTheTurn(times(3), fault)
			c.done(svc.Credit(t.Context(), newRequest(p.alice), p.a, 30))
			if n := events.Of(wallet.Retried); n != 0 {
				t.Errorf("the callback ran again %d times", n)
			}
			c.mustHave(p.a, 133)
			c.mustHold()
		})
	}
}

func TestCommit_AfterLeavingTheQueueWithoutAnAnswerIsUnknown(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	c := open(t, wallet.Config{})
	p := c.pair(100, 0)
	svc, events := c.failBehindTheTurn(always, commitFaults["time expired"])
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	req := newRequest(p.alice)
	_, err := svc.Credit(ctx, req, p.a, 30)
	if a, r := events.Of(wallet.Ambiguous), events.Of(wallet.Resolved); !errors.Is(err, locking.ErrOutcomeUnknown) || a != 1 || r != 0 {
		t.Errorf("%v, want ErrOutcomeUnknown; %d ambiguous, %d resolved", err, a, r)
	}
	c.done(c.Credit(t.Context(), req, p.a, 30)) // another replica, whose commits do not fail
	c.mustHave(p.a, 133)
	c.mustHold()
}

// With and without a queue, the last commit before the answer is with majority.
func TestCommit_TheLastOneIsWithMajority(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]wallet.Config{"queue": {}, "no queue": {QueueMax: -1}, "inc": {Strategy: "inc"}, "txn": {Strategy: "txn"}} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			c := open(t, wallet.Config{})
			p := c.pair(100, 0)
			svc, w := c.watched(cfg)
			c.done(svc.Credit(t.Context(), newRequest(p.alice), p.a, 10))
			if reply, err := svc.Debit(t.Context(), newRequest(p.alice), p.a, 1000); err != nil || !isRefused(reply) {
				t.Errorf("%s, %v", reply.Body, err)
			}
			levels := w.concerns()
			if last := levels[len(levels)-1]; last != `"majority"` || ((name == "no queue" || name == "txn") && slices.Contains(levels, `{"$numberInt":"1"}`)) {
				t.Errorf("commits with write concern %q", levels)
			}
		})
	}
}

// Each request that waits for the majority holds a connection. The number of these requests is
// bounded, so that some connections are left for everything else.
func TestCommit_SlowMajorityOfOneWalletLeavesConnectionsToOthers(t *testing.T) {
	locktest.Slow(t, "it stops two members of a replica set")
	s := newSet(t)
	c := openAt(t, s.url, wallet.Config{})
	p := c.pair(100, 0)
	var using, most atomic.Int64
	o, err := wallet.ClientOptions(s.url)
	s.must(err)
	client, err := mongo.Connect(o.SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
		switch e.Type {
		case event.ConnectionCheckedOut:
			most.Store(max(most.Load(), using.Add(1)))
		case event.ConnectionCheckedIn:
			using.Add(-1)
		}
	}}))
	s.must(err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	svc, _ := c.another(wallet.Config{Database: client.Database(c.db.Name()), Bonus: c.bonus.call, QueueMax: 1024})
	primary, others := s.roles()
	s.replicate(others, "off")
	const requests = 130
	answers := make([]<-chan outcome, requests)
	for n := range answers {
		req := newRequest(p.alice)
		answers[n] = locktest.Beside(func() (wallet.Reply, error) {
			return until(t.Context(), func() (wallet.Reply, error) { return svc.Debit(t.Context(), req, p.a, 1) })
		})
	}
	for s.operations(primary, c.db.Name()) < 60 {
		continue
	}
	for range 100 {
		if _, err := svc.Wallet(t.Context(), p.bob, p.b); err != nil {
			t.Error(err)
		}
	}
	s.replicate(others, "on")
	for _, answer := range answers {
		if o := <-answer; o.Err != nil {
			t.Errorf("%s, %v", o.Reply.Body, o.Err)
		}
	}
	if n := most.Load(); n >= 100 {
		t.Errorf("%d connections were used at once: the whole pool", n)
	}
	c.mustHave(p.a, 0)
	c.mustHold()
}
