// SPDX-License-Identifier: MIT

package api_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/wallet"
)

func lab(strategies ...string) option {
	return func(front *api.Config, _ *inventory.Config) { front.WalletLab = strategies }
}

// badAmounts must be refused in every request with an amount.
var badAmounts = []struct {
	name   string
	amount string
	status int
	typ    api.ProblemType
}{
	{"0", "0", 422, api.TypeInvalidRequest},
	{"-0", "-0", 422, api.TypeInvalidRequest},
	{"negative", "-1", 422, api.TypeInvalidRequest},
	{"a fraction", "0.5", 422, api.TypeInvalidRequest},
	{"with an exponent", "1e2", 400, api.TypeMalformed},
	{"beyond 2^53", "9007199254740992", 422, api.TypeInvalidRequest},
	{"beyond int64", "9223372036854775808", 422, api.TypeInvalidRequest},
	{"beyond float64", "1e400", 422, api.TypeInvalidRequest},
	{"a text", `"1"`, 422, api.TypeInvalidRequest},
	{"null", "null", 422, api.TypeInvalidRequest},
	{"an object", `{"$inc":1}`, 422, api.TypeInvalidRequest},
	{"and twice", `1,"amount":2`, 400, api.TypeMalformed},
	{"and a fee", `1,"fee":1`, 422, api.TypeInvalidRequest},
	{"and a bonus", `1,"bonus":1`, 422, api.TypeInvalidRequest},
}

// badBodies are invalid for both credits and debits.
var badBodies = []struct {
	name   string
	body   string
	status int
	typ    api.ProblemType
}{
	{"none", ``, 400, api.TypeMalformed},
	{"no JSON", `{"amount"`, 400, api.TypeMalformed},
	{"two documents", `{"amount":1}{"amount":1}`, 400, api.TypeMalformed},
	{"nothing", `{}`, 422, api.TypeInvalidRequest},
	{"an array", `[]`, 422, api.TypeInvalidRequest},
	{"null", `null`, 422, api.TypeInvalidRequest},
	{"a number", `1`, 422, api.TypeInvalidRequest},
	{"the member in another case", `{"Amount":1}`, 422, api.TypeInvalidRequest},
}

// badPayees are wallets that ida cannot pay.
var badPayees = []struct {
	name string
	to   string
}{
	{"itself", `"` + ida + `"`},
	{"itself spelled otherwise", `"{018F3A00-0000-7000-8000-00000000000A}"`},
	{"empty", `""`},
	{"no uuid", `"bob"`},
	{"without hyphens", `"018f3a0000007000800000000000000b"`},
	{"as urn", `"urn:uuid:` + idb + `"`},
	{"in one brace", `"{` + idb + `"`},
	{"with a newline", `"` + idb + `\n"`},
	{"null", `null`},
	{"an operator", `{"$ne":null}`},
	{"of another currency", `"` + idd + `"`},
}

const idd = "018f3a00-0000-7000-8000-00000000000d" // bob's, in dollars

func TestRefusals_OfWalletsLeaveNoTrace(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	for id, w := range map[string]wallet.Wallet{
		ida: {Owner: s.ids["alice"], Currency: "EUR"}, idb: {Owner: s.ids["bob"], Currency: "EUR"}, idd: {Owner: s.ids["bob"], Currency: "USD"},
	} {
		w.ID, w.Opening = uuid.MustParse(id), 100
		if _, err := s.walletBackend.OpenWallet(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	refused := func(name, how, body string, status int, typ api.ProblemType) {
		t.Run(how+"/"+name, func(t *testing.T) {
			a := s.cash(fmt.Sprintf("key-%d", n), ida, how, body).want(t, status, typ)
			if a.problem.Detail == "" || a.problem.Title == "" {
				t.Errorf("it does not say what is wrong: %s", a.body)
			}
		})
		n++
	}
	for _, how := range []string{"credits", "debits"} {
		for _, c := range badBodies {
			refused(c.name, how, c.body, c.status, c.typ)
		}
		for _, c := range badAmounts {
			refused("amount "+c.name, how, amountOf(c.amount), c.status, c.typ)
		}
	}
	for _, c := range badBodies {
		refused(c.name, "payments", c.body, c.status, c.typ)
	}
	for _, c := range badAmounts {
		refused("amount "+c.name, "payments", paymentOf(idb, c.amount), c.status, c.typ)
	}
	for _, c := range badPayees {
		refused("to "+c.name, "payments", `{"to":`+c.to+`,"amount":1}`, 422, api.TypeInvalidRequest)
	}
	refused("no payee", "payments", amountOf("1"), 422, api.TypeInvalidRequest)
	if n := s.documents(); n != 0 || s.walletBackend.questions() != 0 {
		t.Errorf("%d documents were left, and the bonus service was called %d times", n, s.walletBackend.questions())
	}
	s.wantCash("alice", ida, 100)
	for i := range n {
		s.debit(fmt.Sprintf("key-%d", i), ida, "1").want(t, 201, "") // so that the keys are still free
	}
}

func TestRefusals_OfWalletsByPathKeyAndHeader(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	a, b := s.wallet("alice", 100), s.wallet("bob", 0)
	for how, body := range map[string]string{"credits": amountOf("1"), "debits": amountOf("1"), "payments": paymentOf(b, "1")} {
		s.cash("", a, how, body, "Idempotency-Key:").want(t, 400, api.TypeMissingIdempotencyKey)
		s.cash("k", a, how, body, "Content-Type: text/plain").want(t, 415, api.TypeUnsupportedMediaType)
		s.cash("k", a, how, body, "Authorization:").want(t, 401, api.TypeUnauthorized)
		s.cash("k", "xyz", how, body).want(t, 400, api.TypeMalformed)
		s.cash("k", "urn:uuid:"+a, how, body).want(t, 400, api.TypeMalformed)
		s.cash("k", a, how+"?strategy=naive", body).want(t, 400, api.TypeMalformed) // not a lab
		s.do("GET", "/v1/wallets/"+a+"/"+how, "").want(t, 405, api.TypeMethodNotAllowed)
	}
	s.do("GET", "/v1/wallets/xyz", "").want(t, 400, api.TypeMalformed)
	s.do("GET", "/v1/wallets", "").want(t, 404, api.TypeNotFound)
	if n := s.documents(); n != 0 {
		t.Errorf("%d documents were left", n)
	}
	s.wantCash("alice", a, 100)
}
