// SPDX-License-Identifier: MIT

package api_test

import (
	"bytes"
	"testing"

	"shop/cmd/shop/api"
)

func TestHold_IsPostedInPartAndTheRestIsFree(t *testing.T) {
	t.Parallel()
	s := open(t, withEtcd(t))
	a, b := s.account("alice", 1000), s.account("bob", 0)
	reserved := s.move("k", moveOf(a, b, "300", pending)).want(t, 201, "")
	if tr := reserved.transfer(t); tr.State != api.TransferReserved || tr.Settled != 0 || tr.EndedAt != nil ||
		tr.ExpiresAt == nil || tr.ExpiresAt.Sub(tr.CreatedAt).Minutes() != 15 {
		t.Errorf("%s", reserved.body)
	}
	s.wantMoney("alice", a, 1000, 300)
	id := reserved.id(t)
	s.settle("p", id, "post", `{"amount":301}`).want(t, 422, api.TypeInvalidRequest)
	posted := s.settle("p", id, "post", `{"amount":100}`).want(t, 201, "")
	if tr := posted.transfer(t); tr.State != api.TransferPosted || tr.Amount != 300 || tr.Settled != 100 || tr.EndedAt == nil {
		t.Errorf("%s", posted.body)
	}
	mustReplay(t, "post", posted, s.settle("p", id, "post", `{ "amount": 100 }`))
	if got := s.do("GET", "/v1/transfers/"+id, "").want(t, 200, ""); !bytes.Equal(got.body, posted.body) {
		t.Errorf("%s\n%s", got.body, posted.body)
	}
	mustReplay(t, "hold", reserved, s.move("k", moveOf(a, b, "300", pending))) // its reply does not change
	s.wantMoney("alice", a, 900, 0)
	s.wantMoney("bob", b, 100, 0)
}

func TestHold_IsSettledOnce(t *testing.T) {
	t.Parallel()
	s := open(t, withEtcd(t))
	a, b := s.account("alice", 1000), s.account("bob", 0)
	for _, c := range []struct{ won, body, lost string }{
		{"post", "", "void"}, {"void", "", "post"}, {"post", "{}", "post"}, {"void", "", "void"},
	} {
		key := c.won + "-" + c.lost
		id := s.move(key, moveOf(a, b, "10", pending)).want(t, 201, "").id(t)
		won := s.settle(key+"-1", id, c.won, c.body).want(t, 201, "")
		mustReplay(t, key, won, s.settle(key+"-1", id, c.won, c.body))
		lost := s.settle(key+"-2", id, c.lost, "").want(t, 409, api.TypeAlreadySettled)
		mustReplay(t, key, lost, s.settle(key+"-2", id, c.lost, ""))
	}
	id := s.move("typed", moveOf(a, b, "10", pending)).want(t, 201, "").id(t)
	for _, header := range []string{"Content-Type: application/json", "Content-Type: text/plain"} { // without a body
		s.settle("typed-1", id, "post", "", header).want(t, 201, "")
	}
	s.wantMoney("alice", a, 970, 0)
	s.wantMoney("bob", b, 30, 0)
}

func TestHold_ExpiredIsRefusedAndStored(t *testing.T) {
	t.Parallel()
	s := open(t, withEtcd(t))
	a, b := s.account("alice", 1000), s.account("bob", 0)
	for _, how := range []string{"post", "void"} {
		id := s.move(how, moveOf(a, b, "10", pending)).want(t, 201, "").id(t)
		s.lapse(id)
		first := s.settle(how+"-1", id, how, "").want(t, 409, api.TypeExpired)
		mustReplay(t, how, first, s.settle(how+"-1", id, how, ""))
		s.settle(how+"-2", id, how, "").want(t, 409, api.TypeExpired)
		if tr := s.do("GET", "/v1/transfers/"+id, "").want(t, 200, "").transfer(t); tr.State != api.TransferExpired || tr.EndedAt == nil {
			t.Errorf("%+v", tr)
		}
	}
	s.wantMoney("alice", a, 1000, 0)
}
