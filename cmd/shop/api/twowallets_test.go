// SPDX-License-Identifier: MIT

package api_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"shop/cmd/shop/api"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
	"shop/wallet/mongotest"
)

// besideWallets starts another server of the same shop, with its own connections, queues
// and handlers, and the same databases.
func (s *shop) besideWallets() *shop {
	s.t.Helper()
	other := *s
	other.pool = pgtest.Pool(s.t, s.pool.Config().ConnString())
	db := mongotest.Connect(s.t, servertest.Env(s.t, "SHOP_MONGO_URL")).Database(s.walletBackend.db.Name())
	front := s.front
	front.Pool, front.Metrics = other.pool, prometheus.NewRegistry()
	front.Wallets = (&walletBackend{Service: s.walletBackend.serve(s.t, db)}).by
	listening := httptest.NewServer(must(api.New(front))(s.t))
	s.t.Cleanup(listening.Close)
	other.api = listening.URL
	return &other
}

// together sends requests concurrently.
func together(t *testing.T, requests ...func() (answer, error)) []answer {
	t.Helper()
	var (
		answers = make([]answer, len(requests))
		errs    = make([]error, len(requests))
		start   = make(chan struct{})
		all     sync.WaitGroup
	)
	for n, send := range requests {
		all.Go(func() {
			<-start
			answers[n], errs[n] = send()
		})
	}
	close(start)
	all.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return answers
}

// post returns a request that can be sent later, from another goroutine.
func (s *shop) post(key, id, how, body string) func() (answer, error) {
	return func() (answer, error) {
		return s.tryUntilDone("POST", "/v1/wallets/"+id+"/"+how, body, "Idempotency-Key: "+key)
	}
}

// If two servers get the same key at once, one of them does the operation, both clients
// get the same reply, byte for byte, and the bonus service is called once.
func TestWallet_OneKeyAtTwoServersAtOnceIsOneOperation(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	servers := []*shop{s, s.besideWallets()}
	a, b := s.wallet("alice", 1000), s.wallet("bob", 0)
	const rounds = 15
	for i := range rounds * 4 {
		how, body := "credits", amountOf("10")
		switch i % 4 {
		case 1:
			how, body = "debits", amountOf("1")
		case 2:
			how, body = "debits", amountOf("1000000") // a refusal, which is stored too
		case 3:
			how, body = "payments", paymentOf(b, "1")
		}
		var requests []func() (answer, error)
		for n := range 4 {
			requests = append(requests, servers[n%2].post(fmt.Sprintf("k%d", i), a, how, body))
		}
		first := 0
		answers := together(t, requests...)
		for _, got := range answers {
			if got.status != answers[0].status || got.status >= 500 || !bytes.Equal(got.body, answers[0].body) {
				t.Fatalf("round %d: %d %s; want %d %s", i, got.status, got.body, answers[0].status, answers[0].body)
			}
			if got.header.Get("Idempotency-Replayed") == "" {
				first++
			}
		}
		if first != 1 {
			t.Errorf("round %d: %d answers claim to be the first", i, first)
		}
	}
	s.wantCash("alice", a, 1000+rounds*(11-1-1))
	s.wantCash("bob", b, rounds)
	if n := s.walletBackend.questions(); n != rounds {
		t.Errorf("the bonus service was called %d times about %d credits", n, rounds)
	}
}

// Two concurrent requests use one key for two wallets. They share no lock, only the key:
// one request takes effect, the other gets idempotency-key-reused.
func TestWallet_OneKeyForTwoWalletsAtOnceIsDoneForOne(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	servers := []*shop{s, s.besideWallets()}
	a, b := s.wallet("alice", 1000), s.wallet("alice", 1000)
	const rounds = 40
	won := map[string]int{}
	for i := range rounds {
		key := fmt.Sprintf("k%d", i)
		answers := together(t, servers[0].post(key, a, "debits", amountOf("1")), servers[1].post(key, b, "debits", amountOf("1")))
		for n, id := range []string{a, b} {
			switch got := answers[n]; {
			case got.status == 201:
				won[id]++
			case got.status != 422 || got.problem.Type != api.TypeIdempotencyKeyReused:
				t.Fatalf("round %d: %d %s", i, got.status, got.body)
			}
		}
		if done := won[a] + won[b]; done != i+1 {
			t.Fatalf("round %d: %d of them were done in this round", i, done-i)
		}
	}
	s.wantCash("alice", a, int64(1000-won[a]))
	s.wantCash("alice", b, int64(1000-won[b]))
}
