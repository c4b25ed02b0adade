// SPDX-License-Identifier: MIT

package api_test

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/transfer"
)

// beside starts another server of the same shop, with its own pool, locks and handlers,
// the same database and the same names in etcd.
func (s *shop) beside(prefix string) *shop {
	s.t.Helper()
	other := *s
	other.pool = pgtest.Pool(s.t, s.pool.Config().ConnString())
	store := locksIn(s.t, prefix)
	service := must(transfer.New(transfer.Config{Pool: other.pool, Locks: store, Epoch: store.Epoch(), Encode: api.EncodeTransfer}))(s.t)
	front := s.front
	front.Pool, front.Books, front.Metrics = other.pool, service, prometheus.NewRegistry()
	front.Transfers = func(string) (*transfer.Service, error) { return service, nil }
	listening := httptest.NewServer(must(api.New(front))(s.t))
	s.t.Cleanup(listening.Close)
	other.api = listening.URL
	return &other
}

// If two servers get the same key at once, one of them does the transfer, and both
// clients get the same reply, byte for byte.
func TestTransfer_OneKeyAtTwoServersAtOnceIsOneTransfer(t *testing.T) {
	t.Parallel()
	prefix := uuid.NewString()
	s := open(t)
	servers := []*shop{s.beside(prefix), s.beside(prefix)}
	a, b := s.account("alice", 1_000_000), s.account("bob", 0)
	const rounds = 30
	for i := range rounds {
		body := moveOf(a, b, "1")
		if i%3 == 2 {
			body = moveOf(a, b, "2000000") // a refusal, which is stored too
		}
		var (
			answers [4]answer
			errs    [4]error
			start   = make(chan struct{})
			all     sync.WaitGroup
		)
		for n := range answers {
			all.Go(func() {
				<-start
				answers[n], errs[n] = servers[n%2].tryUntilDone("POST", "/v1/transfers", body, fmt.Sprintf("Idempotency-Key: k%d", i))
			})
		}
		close(start)
		all.Wait()
		first := 0
		for n, got := range answers {
			if errs[n] != nil || got.status != answers[0].status || !bytes.Equal(got.body, answers[0].body) {
				t.Fatalf("round %d: %d %s, %v; want %d %s", i, got.status, got.body, errs[n], answers[0].status, answers[0].body)
			}
			if got.header.Get("Idempotency-Replayed") == "" {
				first++
			}
		}
		if first != 1 {
			t.Errorf("round %d: %d answers claim to be the first", i, first)
		}
	}
	s.wantMoney("alice", a, 1_000_000-rounds*2/3, 0)
	if n := s.count("transfers"); n != rounds*2/3 {
		t.Errorf("%d transfers, want %d", n, rounds*2/3)
	}
}

// If an account is fenced in another epoch, or has seen newer fences, nothing is done, the
// answer says which, and the key is still free.
func TestTransfer_RefusedByTheFenceIsReportedAndTheKeyStaysFree(t *testing.T) {
	t.Parallel()
	s := open(t, withEtcd(t))
	a, b := s.account("alice", 1000), s.account("bob", 0)
	s.move("k0", moveOf(a, b, "1")).want(t, 201, "")
	for _, c := range []struct {
		damage, repair string
		typ            api.ProblemType
	}{
		{`fence_epoch = fence_epoch || '-gone'`, `fence_epoch = replace(fence_epoch, '-gone', '')`, api.TypeFenceEpoch},
		{`fence = fence + (1::bigint << 60)`, `fence = fence - (1::bigint << 60)`, api.TypeStale},
	} {
		s.exec(`UPDATE accounts SET ` + c.damage)
		refused := s.move(string(c.typ), moveOf(a, b, "1")).want(t, 503, c.typ)
		if refused.header.Get("Retry-After") == "" || refused.problem.Detail == "" {
			t.Errorf("%v %s", refused.header, refused.body)
		}
		s.move("k0", moveOf(a, b, "1")).want(t, 201, "") // a replay needs no fence
		s.exec(`UPDATE accounts SET ` + c.repair)
		s.move(string(c.typ), moveOf(a, b, "1")).want(t, 201, "")
	}
	s.wantMoney("alice", a, 997, 0)
}

func TestTransfer_TheLabLetsARequestChooseItsStrategy(t *testing.T) {
	t.Parallel()
	lab := func(front *api.Config, _ *inventory.Config) { front.TransferLab = []string{"row", "naive"} }
	s := open(t, lab)
	a, b := s.account("alice", 1000), s.account("bob", 0)
	move := func(strategy string) answer {
		return s.do("POST", "/v1/transfers?strategy="+strategy, moveOf(a, b, "1", pending), "Idempotency-Key: "+uuid.NewString())
	}
	id := move("naive").want(t, 201, "").id(t)
	move("hope").want(t, 400, api.TypeMalformed)
	s.do("POST", "/v1/transfers/"+id+"/post?strategy=row", "", "Idempotency-Key: p").want(t, 201, "")
}
