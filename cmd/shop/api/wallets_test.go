// SPDX-License-Identifier: MIT

package api_test

import (
	"strings"
	"testing"

	"shop/cmd/shop/api"
)

func TestWallet_ACreditIsOneHoweverOftenAndHoweverSpelled(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a := s.wallet("alice", 100)
	first := s.credit("k", a, "300").want(t, 201, "")
	if op := first.operation(t); op.Wallet.String() != a || op.To != nil || op.Kind != api.WalletCredit || op.Amount != 300 || op.Bonus != 30 || op.Currency != "EUR" || op.CreatedAt.IsZero() {
		t.Errorf("%s", first.body)
	}
	upper := strings.ToUpper
	for name, again := range map[string]answer{
		"same":        s.credit("k", a, "300"),
		"quoted key":  s.credit(`"k"`, a, "300"),
		"upper case":  s.credit("k", upper(a), "300"),
		"braces":      s.credit("k", "%7B"+a+"%7D", "300"),
		"white space": s.cash("k", a, "credits", "{ \"amount\" :\n300 }"),
	} {
		mustReplay(t, name, first, again)
	}
	if n := s.walletBackend.questions(); n != 1 {
		t.Errorf("the bonus service was called %d times", n)
	}
	w := s.wantCash("alice", upper(a), 430)
	if len(w.Entries) != 1 || w.Entries[0].Delta != 330 || w.Entries[0].Operation != first.operation(t).ID || w.Currency != "EUR" || w.ID.String() != a {
		t.Errorf("%+v", w)
	}
}

func TestWallet_DebitsAndPaymentsMoveWhatIsThere(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a, b := s.wallet("alice", 100), s.wallet("bob", 0)
	debit := s.debit("d", a, "10").want(t, 201, "")
	if op := debit.operation(t); op.Kind != api.WalletDebit || op.Amount != 10 || op.Bonus != 0 {
		t.Errorf("%s", debit.body)
	}
	payment := s.pay("p", a, b, "60").want(t, 201, "")
	if op := payment.operation(t); op.Kind != api.WalletPayment || op.Wallet.String() != a || op.To == nil || op.To.String() != b || op.Amount != 60 {
		t.Errorf("%s", payment.body)
	}
	mustReplay(t, "debit", debit, s.debit("d", a, "10"))
	mustReplay(t, "payment", payment, s.pay("p", strings.ToUpper(a), "{"+b+"}", "60"))
	s.pay("back", b, a, "1", s.as("bob")).want(t, 201, "")
	s.wantCash("bob", b, 59)
	if w := s.wantCash("alice", a, 31); len(w.Entries) != 3 || w.Entries[0].Delta != 1 || w.Entries[2].Delta != -10 {
		t.Errorf("entries: %+v", w.Entries)
	}
	if n := s.walletBackend.questions(); n != 0 {
		t.Errorf("the bonus service was called %d times about what gets no bonus", n)
	}
}

func TestWallet_TooLittleMoneyIsStoredAndReplayed(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a, b := s.wallet("alice", 60), s.wallet("bob", 1000)
	first := s.debit("k", a, "61").want(t, 409, api.TypeInsufficientFunds)
	p := first.problem
	if p.Wallet == nil || p.Wallet.String() != a || p.Wanted == nil || *p.Wanted != 61 || p.Available == nil || *p.Available != 60 || p.Account != nil {
		t.Errorf("%s", first.body)
	}
	payment := s.pay("p", a, b, "61").want(t, 409, api.TypeInsufficientFunds)
	s.pay("in", b, a, "1000", s.as("bob")).want(t, 201, "")
	mustReplay(t, "debit", first, s.debit("k", a, "61"))
	mustReplay(t, "payment", payment, s.pay("p", a, b, "61"))
	s.debit("k2", a, "61").want(t, 201, "")
	s.wantCash("alice", a, 999)
}

func TestWallet_AKeyIsOneIntentOfOneClient(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a, b, c := s.wallet("alice", 1000), s.wallet("bob", 1000), s.wallet("alice", 1000)
	s.debit("k", a, "1").want(t, 201, "")
	s.debit("k", a, "2").want(t, 422, api.TypeIdempotencyKeyReused)
	s.debit("k", c, "1").want(t, 422, api.TypeIdempotencyKeyReused) // for another wallet
	s.credit("k", a, "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.credit("k", c, "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.pay("k", a, b, "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.debit("n", a, "5000").want(t, 409, api.TypeInsufficientFunds)
	s.debit("n", c, "5000").want(t, 422, api.TypeIdempotencyKeyReused) // the key of a refusal is used too
	s.pay("p", a, b, "1").want(t, 201, "")
	s.pay("p", a, c, "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.pay("p", c, b, "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.pay("p", a, b, "2").want(t, 422, api.TypeIdempotencyKeyReused)
	if his := s.debit("k", b, "1", s.as("bob")).want(t, 201, ""); his.header.Get("Idempotency-Replayed") != "" {
		t.Error("bob was given alice's answer")
	}
	s.wantCash("alice", a, 998)
	s.wantCash("alice", c, 1000)
}

func TestWallet_OnlyTheOwnerMayWriteAndAnyClientMayBePaid(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a, b := s.wallet("alice", 1000), s.wallet("bob", 500)
	for _, thief := range []string{"bob", "admin"} {
		for _, id := range []string{a, strings.ToUpper(a)} {
			s.debit("k", id, "1", s.as(thief)).want(t, 403, api.TypeForbidden)
			s.pay("k", id, b, "1", s.as(thief)).want(t, 403, api.TypeForbidden)
			s.credit("k", id, "1", s.as(thief)).want(t, 403, api.TypeForbidden)
		}
		s.do("GET", "/v1/wallets/"+a, "", s.as(thief)).want(t, 404, api.TypeNotFound)
	}
	if n := s.documents(); n != 0 || s.walletBackend.questions() != 0 {
		t.Errorf("%d documents were left, and the bonus service was called %d times", n, s.walletBackend.questions())
	}
	s.pay("k", b, a, "500", s.as("bob")).want(t, 201, "") // so that the key is still free
	s.wantCash("alice", a, 1500)
	s.wantCash("bob", b, 0)
}

func TestWallet_AnAbsentOneIsNotFound(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a := s.wallet("alice", 1000)
	const unknown = "00000000-0000-0000-0000-000000000000"
	s.do("GET", "/v1/wallets/"+unknown, "").want(t, 404, api.TypeNotFound)
	s.credit("k", unknown, "1").want(t, 404, api.TypeNotFound)
	s.debit("k", unknown, "1").want(t, 404, api.TypeNotFound)
	s.pay("k", a, unknown, "1").want(t, 404, api.TypeNotFound)
	s.pay("k", unknown, a, "1").want(t, 404, api.TypeNotFound)
	if n := s.documents(); n != 0 || s.walletBackend.questions() != 0 {
		t.Errorf("%d documents were left, and the bonus service was called %d times", n, s.walletBackend.questions())
	}
	s.debit("k", a, "1").want(t, 201, "")
}

func TestWallet_WithoutAnAnswerAboutTheBonusNothingIsCredited(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a := s.wallet("alice", 100)
	s.walletBackend.breaks(errBonusDown)
	busy := s.credit("k", a, "10").want(t, 503, api.TypeBusy)
	if busy.header.Get("Retry-After") == "" || strings.Contains(string(busy.body), errBonusDown.Error()) {
		t.Errorf("%v %s", busy.header, busy.body)
	}
	s.debit("d", a, "1").want(t, 201, "") // needs no bonus
	s.wantCash("alice", a, 99)
	s.walletBackend.breaks(nil)
	s.credit("k", a, "10").want(t, 201, "")
	s.wantCash("alice", a, 110)
}

// Without MongoDB there are no wallets, and everything else works.
func TestWallet_WithoutMongoDBTheyAreBusyAndTheRestGoesOn(t *testing.T) {
	t.Parallel()
	s := open(t)
	for _, a := range []answer{
		s.credit("k", ida, "1"), s.debit("k", ida, "1"), s.pay("k", ida, idb, "1"), s.do("GET", "/v1/wallets/"+ida, ""),
	} {
		if a.want(t, 503, api.TypeBusy).header.Get("Retry-After") == "" {
			t.Errorf("%v", a.header)
		}
	}
	s.buy("k", "coffee", "1").want(t, 201, "")
}

func TestWallet_TheLabLetsARequestChooseItsStrategy(t *testing.T) {
	t.Parallel()
	s := openWallets(t, lab("inc", "naive"))
	a, b := s.wallet("alice", 1000), s.wallet("bob", 0)
	for _, how := range []struct{ route, body string }{{"credits", amountOf("10")}, {"debits", amountOf("1")}, {"payments", paymentOf(b, "1")}} {
		first := s.cash(how.route, a, how.route+"?strategy=inc", how.body).want(t, 201, "")
		mustReplay(t, how.route, first, s.cash(how.route, a, how.route+"?strategy=naive", how.body)) // the strategy is not part of the intent
		s.cash("x", a, how.route+"?strategy=hope", how.body).want(t, 400, api.TypeMalformed)
	}
	s.wantCash("alice", a, 1009)
}
