// SPDX-License-Identifier: MIT

package api_test

import (
	"bytes"
	"strings"
	"testing"

	"shop/cmd/shop/api"
)

// mustReplay checks that an answer replays the stored one.
func mustReplay(t *testing.T, name string, first, again answer) {
	t.Helper()
	if again.status != first.status || !bytes.Equal(again.body, first.body) || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s: %d %s replayed %q; want %d %s", name, again.status, again.body, again.header.Get("Idempotency-Replayed"), first.status, first.body)
	}
	if got := again.header.Get("Content-Type"); got != first.header.Get("Content-Type") {
		t.Errorf("%s: replayed as %s", name, got)
	}
}

func TestTransfer_MovesMoneyOnceHoweverOftenAndHoweverSpelled(t *testing.T) {
	t.Parallel()
	s := open(t, withEtcd(t))
	a, b := s.account("alice", 1000), s.account("bob", 0)
	first := s.move("k", moveOf(a, b, "300")).want(t, 201, "")
	tr := first.transfer(t)
	if tr.From.String() != a || tr.To.String() != b || tr.Amount != 300 || tr.Settled != 300 || tr.Currency != "EUR" ||
		tr.State != api.TransferPosted || tr.EndedAt == nil || tr.ExpiresAt != nil {
		t.Errorf("%s", first.body)
	}
	upper := strings.ToUpper
	for name, again := range map[string]answer{
		"same":        s.move("k", moveOf(a, b, "300")),
		"quoted key":  s.move(`"k"`, moveOf(a, b, "300")),
		"upper case":  s.move("k", moveOf(upper(a), upper(b), "300")),
		"braces":      s.move("k", moveOf("{"+a+"}", "{"+b+"}", "300")),
		"both":        s.move("k", moveOf("{"+upper(a)+"}", b, "300")),
		"white space": s.move("k", strings.ReplaceAll(moveOf(a, b, "300"), ",", " ,\n")),
		"not pending": s.move("k", moveOf(a, b, "300", `,"pending":false`)),
	} {
		mustReplay(t, name, first, again)
	}
	account := s.wantMoney("alice", a, 700, 0)
	if len(account.Entries) != 1 || account.Entries[0].Delta != -300 || account.Entries[0].Transfer != tr.ID {
		t.Errorf("entries: %+v", account.Entries)
	}
	s.wantMoney("bob", b, 300, 0)
	if got := s.do("GET", "/v1/transfers/"+tr.ID.String(), "").want(t, 200, ""); !bytes.Equal(got.body, first.body) {
		t.Errorf("%s\n%s", got.body, first.body)
	}
}

// Every spelling of a UUID names the same account, in the path too.
func TestTransfer_AnotherSpellingInThePathIsTheSame(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := s.account("alice", 1000), s.account("bob", 0)
	id := s.move("k", moveOf(strings.ToUpper(a), "{"+b+"}", "100", pending)).want(t, 201, "").id(t)
	s.wantMoney("alice", strings.ToUpper(a), 1000, 100)
	s.wantMoney("alice", "%7B"+a+"%7D", 1000, 100)
	s.do("GET", "/v1/transfers/%7B"+strings.ToUpper(id)+"%7D", "").want(t, 200, "")
	first := s.settle("p", strings.ToUpper(id), "post", "").want(t, 201, "")
	mustReplay(t, "braces", first, s.settle("p", "%7B"+id+"%7D", "post", ""))
	s.wantMoney("alice", a, 900, 0)
}

func TestTransfer_OnlyTheOwnerMayDebit(t *testing.T) {
	t.Parallel()
	s := open(t, withEtcd(t))
	a, b := s.account("alice", 1000), s.account("bob", 500)
	for _, thief := range []string{"bob", "admin"} {
		for _, body := range []string{moveOf(a, b, "1"), moveOf(strings.ToUpper(a), b, "1"), moveOf(a, b, "1", pending)} {
			s.move("k", body, s.as(thief)).want(t, 403, api.TypeForbidden)
		}
	}
	s.wantMoney("alice", a, 1000, 0)
	if n := s.count("transfers") + s.count("idempotency_keys"); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	s.move("k", moveOf(b, a, "500"), s.as("bob")).want(t, 201, "") // so that the key is still free
}

func TestTransfer_OfAnotherClientIsNotFound(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := s.account("alice", 1000), s.account("bob", 500)
	id := s.move("k", moveOf(a, b, "10", pending)).want(t, 201, "").id(t)
	for _, other := range []string{"bob", "admin"} {
		s.do("GET", "/v1/accounts/"+a, "", s.as(other)).want(t, 404, api.TypeNotFound)
		s.do("GET", "/v1/transfers/"+id, "", s.as(other)).want(t, 404, api.TypeNotFound)
		s.settle("p", id, "post", "", s.as(other)).want(t, 404, api.TypeNotFound)
		s.settle("v", id, "void", "", s.as(other)).want(t, 404, api.TypeNotFound)
	}
	const unknown = "00000000-0000-0000-0000-000000000000"
	for _, path := range []string{"/v1/accounts/", "/v1/transfers/"} {
		s.do("GET", path+unknown, "").want(t, 404, api.TypeNotFound)
	}
	s.move("n", moveOf(a, unknown, "1")).want(t, 404, api.TypeNotFound)
	s.move("n", moveOf(unknown, a, "1")).want(t, 404, api.TypeNotFound)
	s.wantMoney("alice", a, 1000, 10)
}

func TestTransfer_TooLittleMoneyIsStoredAndReplayed(t *testing.T) {
	t.Parallel()
	s := open(t, withEtcd(t))
	a, b := s.account("alice", 100), s.account("bob", 1000)
	s.move("hold", moveOf(a, b, "40", pending)).want(t, 201, "")
	first := s.move("k", moveOf(a, b, "61")).want(t, 409, api.TypeInsufficientFunds)
	p := first.problem
	if p.Account == nil || p.Account.String() != a || p.Wanted == nil || *p.Wanted != 61 || p.Available == nil || *p.Available != 60 {
		t.Errorf("%s", first.body)
	}
	held := s.move("h", moveOf(a, b, "61", pending)).want(t, 409, api.TypeInsufficientFunds)
	s.move("in", moveOf(b, a, "1000"), s.as("bob")).want(t, 201, "")
	mustReplay(t, "transfer", first, s.move("k", moveOf(strings.ToUpper(a), b, "61")))
	mustReplay(t, "hold", held, s.move("h", moveOf(a, b, "61", `,"pending":true,"expires_in":"900s"`)))
	s.move("k2", moveOf(a, b, "61")).want(t, 201, "")
	s.wantMoney("alice", a, 1039, 40)
}

func TestTransfer_AKeyIsOneIntentOfOneClient(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b, c := s.account("alice", 1000), s.account("bob", 1000), s.account("alice", 0)
	id := s.move("k", moveOf(a, b, "1", pending)).want(t, 201, "").id(t)
	for _, body := range []string{
		moveOf(a, b, "2", pending), moveOf(a, c, "1", pending), moveOf(c, b, "1", pending), moveOf(a, b, "1"),
		moveOf(a, b, "1", `,"pending":true,"expires_in":"16m"`),
	} {
		s.move("k", body).want(t, 422, api.TypeIdempotencyKeyReused)
	}
	s.settle("k", id, "post", "").want(t, 422, api.TypeIdempotencyKeyReused)
	s.settle("k", id, "void", "").want(t, 422, api.TypeIdempotencyKeyReused)
	s.settle("p", id, "post", `{"amount":1}`).want(t, 201, "")
	s.settle("p", id, "post", "").want(t, 422, api.TypeIdempotencyKeyReused)
	s.settle("p", id, "void", "").want(t, 422, api.TypeIdempotencyKeyReused)
	if his := s.move("k", moveOf(b, a, "1"), s.as("bob")).want(t, 201, ""); his.header.Get("Idempotency-Replayed") != "" {
		t.Error("bob was given alice's answer")
	}
	s.wantMoney("alice", a, 1000, 0)
}
