// SPDX-License-Identifier: MIT

package api_test

import (
	"fmt"
	"testing"

	"shop/cmd/shop/api"
)

const (
	ida = "018f3a00-0000-7000-8000-00000000000a" // alice's
	idb = "018f3a00-0000-7000-8000-00000000000b" // bob's
)

func inEuro(amount string) string { return moveOf(ida, idb, amount) }

func from(id string) string { return moveOf(id, idb, "1") }

func hold(how string) string { return moveOf(ida, idb, "1", ","+how) }

// badTransfers are requests that must be refused, and must change nothing.
var badTransfers = []struct {
	name   string
	body   string
	status int
	typ    api.ProblemType
}{
	{"no body", ``, 400, api.TypeMalformed},
	{"no JSON", `{"from"`, 400, api.TypeMalformed},
	{"two documents", inEuro("1") + inEuro("1"), 400, api.TypeMalformed},
	{"a member twice", moveOf(ida, idb, "1", `,"amount":2`), 400, api.TypeMalformed},
	{"nothing", `{}`, 422, api.TypeInvalidRequest},
	{"an array", `[]`, 422, api.TypeInvalidRequest},
	{"no currency", `{"from":"` + ida + `","to":"` + idb + `","amount":1}`, 422, api.TypeInvalidRequest},
	{"unknown member", moveOf(ida, idb, "1", `,"fee":1`), 422, api.TypeInvalidRequest},
	{"amount 0", inEuro("0"), 422, api.TypeInvalidRequest},
	{"amount -0", inEuro("-0"), 422, api.TypeInvalidRequest},
	{"amount negative", inEuro("-1"), 422, api.TypeInvalidRequest},
	{"amount a fraction", inEuro("0.5"), 422, api.TypeInvalidRequest},
	{"amount with an exponent", inEuro("1e2"), 400, api.TypeMalformed},
	{"amount beyond 2^53", inEuro("9007199254740992"), 422, api.TypeInvalidRequest},
	{"amount beyond int64", inEuro("9223372036854775808"), 422, api.TypeInvalidRequest},
	{"amount beyond float64", inEuro("1e400"), 422, api.TypeInvalidRequest},
	{"amount a text", inEuro(`"1"`), 422, api.TypeInvalidRequest},
	{"amount null", inEuro("null"), 422, api.TypeInvalidRequest},
	{"X to X", moveOf(ida, ida, "1"), 422, api.TypeInvalidRequest},
	{"X to X spelled otherwise", moveOf(ida, "{018F3A00-0000-7000-8000-00000000000A}", "1"), 422, api.TypeInvalidRequest},
	{"id empty", from(""), 422, api.TypeInvalidRequest},
	{"id no uuid", from("alice"), 422, api.TypeInvalidRequest},
	{"id without hyphens", from("018f3a000000700080000000000000" + "0a"), 422, api.TypeInvalidRequest},
	{"id as urn", from("urn:uuid:" + ida), 422, api.TypeInvalidRequest},
	{"id in one brace", from("{" + ida), 422, api.TypeInvalidRequest},
	{"id with a newline", from(ida + "\n"), 422, api.TypeInvalidRequest},
	{"id null", `{"from":null,"to":"` + idb + `","amount":1,"currency":"EUR"}`, 422, api.TypeInvalidRequest},
	{"currency in lower case", `{"from":"` + ida + `","to":"` + idb + `","amount":1,"currency":"eur"}`, 422, api.TypeInvalidRequest},
	{"currency of no account", `{"from":"` + ida + `","to":"` + idb + `","amount":1,"currency":"CHF"}`, 422, api.TypeInvalidRequest},
	{"currency of another account", `{"from":"` + ida + `","to":"` + idb + `","amount":1,"currency":"USD"}`, 422, api.TypeInvalidRequest},
	{"pending without an end", hold(`"pending":true`), 422, api.TypeInvalidRequest},
	{"an end without pending", hold(`"expires_in":"15m"`), 422, api.TypeInvalidRequest},
	{"an end, not pending", hold(`"pending":false,"expires_in":"15m"`), 422, api.TypeInvalidRequest},
	{"pending a text", hold(`"pending":"true","expires_in":"15m"`), 422, api.TypeInvalidRequest},
	{"end empty", hold(`"pending":true,"expires_in":""`), 422, api.TypeInvalidRequest},
	{"end a number", hold(`"pending":true,"expires_in":15`), 422, api.TypeInvalidRequest},
	{"end without a unit", hold(`"pending":true,"expires_in":"15"`), 422, api.TypeInvalidRequest},
	{"end at once", hold(`"pending":true,"expires_in":"0s"`), 422, api.TypeInvalidRequest},
	{"end in the past", hold(`"pending":true,"expires_in":"-1m"`), 422, api.TypeInvalidRequest},
	{"end too soon", hold(`"pending":true,"expires_in":"1us"`), 422, api.TypeInvalidRequest},
	{"end too late", hold(`"pending":true,"expires_in":"721h"`), 422, api.TypeInvalidRequest},
}

func TestRefusals_OfTransfersLeaveNoTrace(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.exec(`
		INSERT INTO accounts (id, owner_id, currency, opening, balance)
		VALUES ($1, $3, 'EUR', 100, 100), ($2, $4, 'EUR', 100, 100)`, ida, idb, s.ids["alice"], s.ids["bob"])
	for i, c := range badTransfers {
		t.Run(c.name, func(t *testing.T) {
			a := s.move(fmt.Sprintf("key-%d", i), c.body).want(t, c.status, c.typ)
			if a.problem.Detail == "" || a.problem.Title == "" {
				t.Errorf("it does not say what is wrong: %s", a.body)
			}
		})
	}
	s.move("", inEuro("1"), "Idempotency-Key:").want(t, 400, api.TypeMissingIdempotencyKey)
	if n := s.count("transfers") + s.count("idempotency_keys") + s.count("ledger_entries"); n != 0 {
		t.Errorf("%d rows were left", n)
	}
	s.wantMoney("alice", ida, 100, 0)
	s.move("key-0", inEuro("1")).want(t, 201, "") // so that the keys are still free
}

func TestRefusals_OfPostAndVoidLeaveTheHold(t *testing.T) {
	t.Parallel()
	s := open(t)
	a, b := s.account("alice", 100), s.account("bob", 0)
	id := s.move("k", moveOf(a, b, "10", pending)).want(t, 201, "").id(t)
	for _, body := range []string{`{"amount":0}`, `{"amount":-1}`, `{"amount":1.5}`, `{"amount":11}`, `{"amount":null}`, `{"sum":1}`, `[]`, `null`} {
		s.settle("p", id, "post", body).want(t, 422, api.TypeInvalidRequest)
	}
	s.settle("p", id, "post", `{"amount":1`).want(t, 400, api.TypeMalformed)
	s.settle("p", id, "post", `{"amount":1}`, "Content-Type: text/plain").want(t, 415, api.TypeUnsupportedMediaType)
	s.settle("p", id, "void", `{}`).want(t, 400, api.TypeMalformed)
	for _, how := range []string{"post", "void"} {
		s.settle("", id, how, "", "Idempotency-Key:").want(t, 400, api.TypeMissingIdempotencyKey)
		s.settle("p", "xyz", how, "").want(t, 400, api.TypeMalformed)
		s.settle("p", "urn:uuid:"+id, how, "").want(t, 400, api.TypeMalformed)
		s.do("POST", "/v1/transfers/"+id+"/"+how+"?strategy=naive", "", "Idempotency-Key: p").want(t, 400, api.TypeMalformed)
	}
	s.wantMoney("alice", a, 100, 10)
	s.settle("p", id, "post", "").want(t, 201, "")
}
