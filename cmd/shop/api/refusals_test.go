// SPDX-License-Identifier: MIT

package api_test

import (
	"fmt"
	"strings"
	"testing"

	"shop/cmd/shop/api"
)

func orderOf(lines ...string) string { return `{"lines":[` + strings.Join(lines, ",") + `]}` }

func line(sku, quantity string) string {
	return fmt.Sprintf(`{"sku":%q,"quantity":%s}`, sku, quantity)
}

func manyLines(n int) string {
	var all []string
	for i := range n {
		all = append(all, line(fmt.Sprintf("sku-%d", i), "1"))
	}
	return orderOf(all...)
}

var good = orderOf(line("coffee", "1"))

// Numbers in the text are those that a client writes.
func TestRefusals_TheTextHasPlainNumbers(t *testing.T) {
	t.Parallel()
	s := open(t)
	for quantity, want := range map[string]string{
		"1000001":                      "The body: number must be at most 1000000.",
		"0":                            "The body: number must be at least 1.",
		"1" + strings.Repeat("0", 400): "The body: number is too large.",
	} {
		answer := s.do("POST", "/v1/orders", orderOf(line("coffee", quantity)), "Idempotency-Key: k").want(t, 422, api.TypeInvalidRequest)
		if !strings.Contains(string(answer.body), want) {
			t.Errorf("%.10s: %s", quantity, answer.body)
		}
	}
	answer := s.do("POST", "/v1/transfers", fmt.Sprintf(`{"from":%q,"to":%q,"amount":9007199254740992,"currency":"EUR"}`, s.ids["alice"], s.ids["bob"]), "Idempotency-Key: k")
	if want := "at most 9007199254740991."; !strings.Contains(string(answer.body), want) {
		t.Errorf("%s", answer.body)
	}
}

// badOrders are requests that must be refused, and must leave no trace.
var badOrders = []struct {
	name   string
	body   string
	header string
	status int
	typ    api.ProblemType
}{
	{"no key", good, "Idempotency-Key:", 400, api.TypeMissingIdempotencyKey},
	{"key too long", good, "Idempotency-Key: " + strings.Repeat("k", 256), 400, api.TypeMalformed},
	{"key far too long", good, "Idempotency-Key: " + strings.Repeat("k", 600), 400, api.TypeMalformed},
	{"key not ASCII", good, "Idempotency-Key: schlüssel", 400, api.TypeMalformed},
	{"key half quoted", good, `Idempotency-Key: "k`, 400, api.TypeMalformed},
	{"key empty in quotes", good, `Idempotency-Key: ""`, 400, api.TypeMalformed},

	{"no body", "", "", 400, api.TypeMalformed},
	{"no JSON", `{"lines":[`, "", 400, api.TypeMalformed},
	{"something behind it", good + `{}`, "", 400, api.TypeMalformed},
	{"text", "hello", "", 400, api.TypeMalformed},
	{"number with a leading zero", orderOf(line("coffee", "01")), "", 400, api.TypeMalformed},
	{"not a number", orderOf(line("coffee", "NaN")), "", 400, api.TypeMalformed},

	{"null", "null", "", 422, api.TypeInvalidRequest},
	{"list", "[]", "", 422, api.TypeInvalidRequest},
	{"no lines", `{}`, "", 422, api.TypeInvalidRequest},
	{"lines null", `{"lines":null}`, "", 422, api.TypeInvalidRequest},
	{"0 lines", orderOf(), "", 422, api.TypeInvalidRequest},
	{"21 lines", manyLines(21), "", 422, api.TypeInvalidRequest},
	{"unknown field", `{"lines":[` + line("coffee", "1") + `],"total":1}`, "", 422, api.TypeInvalidRequest},
	{"unknown field in a line", orderOf(`{"sku":"coffee","quantity":1,"price":890}`), "", 422, api.TypeInvalidRequest},
	{"unit price negative", orderOf(`{"sku":"coffee","quantity":1,"unit_price":-1}`), "", 422, api.TypeInvalidRequest},
	{"unit price null", orderOf(`{"sku":"coffee","quantity":1,"unit_price":null}`), "", 422, api.TypeInvalidRequest},
	{"field in another case", `{"Lines":[` + line("coffee", "1") + `]}`, "", 422, api.TypeInvalidRequest},
	{"field in another case besides", `{"lines":[` + line("coffee", "1") + `],"LINES":[]}`, "", 422, api.TypeInvalidRequest},
	{"line without sku", orderOf(`{"quantity":1}`), "", 422, api.TypeInvalidRequest},
	{"line without quantity", orderOf(`{"sku":"coffee"}`), "", 422, api.TypeInvalidRequest},
	{"sku twice", orderOf(line("coffee", "1"), line("coffee", "2")), "", 422, api.TypeInvalidRequest},
	{"sku empty", orderOf(line("", "1")), "", 422, api.TypeInvalidRequest},
	{"sku too long", orderOf(line(strings.Repeat("s", 65), "1")), "", 422, api.TypeInvalidRequest},
	{"sku with NUL", orderOf(`{"sku":"a\u0000b","quantity":1}`), "", 422, api.TypeInvalidRequest},
	{"sku with a newline", orderOf(`{"sku":"coffee\n","quantity":1}`), "", 422, api.TypeInvalidRequest},
	{"sku a number", orderOf(`{"sku":1,"quantity":1}`), "", 422, api.TypeInvalidRequest},
	{"quantity 0", orderOf(line("coffee", "0")), "", 422, api.TypeInvalidRequest},
	{"quantity -0", orderOf(line("coffee", "-0")), "", 422, api.TypeInvalidRequest},
	{"quantity negative", orderOf(line("coffee", "-1")), "", 422, api.TypeInvalidRequest},
	{"quantity a fraction", orderOf(line("coffee", "1.5")), "", 422, api.TypeInvalidRequest},
	{"quantity nearly 1", orderOf(line("coffee", "1.0000000000000000001")), "", 400, api.TypeMalformed},
	{"quantity with a fraction and an exponent", orderOf(line("coffee", "1.0e1")), "", 400, api.TypeMalformed},
	{"quantity with an exponent", orderOf(line("coffee", "2e0")), "", 400, api.TypeMalformed},
	{"quantity a text", orderOf(line("coffee", `"1"`)), "", 422, api.TypeInvalidRequest},
	{"quantity null", orderOf(line("coffee", "null")), "", 422, api.TypeInvalidRequest},
	{"quantity over the limit", orderOf(line("coffee", "1000001")), "", 422, api.TypeInvalidRequest},
	{"quantity beyond 2^53", orderOf(line("coffee", "9007199254740993")), "", 422, api.TypeInvalidRequest},
	{"quantity beyond int64", orderOf(line("coffee", "9223372036854775809")), "", 422, api.TypeInvalidRequest},
	{"quantity beyond float64", orderOf(line("coffee", "1e400")), "", 422, api.TypeInvalidRequest},
	{"quantity next to nothing", orderOf(line("coffee", "1e-400")), "", 422, api.TypeInvalidRequest},
	{"two currencies", orderOf(line("coffee", "1"), line("dollar", "1")), "", 422, api.TypeInvalidRequest},

	{"no content type", good, "Content-Type:", 415, api.TypeUnsupportedMediaType},
	{"form", good, "Content-Type: application/x-www-form-urlencoded", 415, api.TypeUnsupportedMediaType},
	{"text/json", good, "Content-Type: text/json", 415, api.TypeUnsupportedMediaType},
	{"other charset", good, "Content-Type: application/json; charset=utf-16", 415, api.TypeUnsupportedMediaType},
	{"compressed", good, "Content-Encoding: gzip", 415, api.TypeUnsupportedMediaType},
	{"too large", `{"lines":[` + strings.Repeat(" ", 20<<10) + `]}`, "", 413, api.TypeTooLarge},
}

func TestRefusals_OfOrdersLeaveNoTrace(t *testing.T) {
	t.Parallel()
	s := open(t)
	for i, c := range badOrders {
		t.Run(c.name, func(t *testing.T) {
			headers := []string{fmt.Sprintf("Idempotency-Key: key-%d", i)}
			if c.header != "" {
				headers = append(headers, c.header)
			}
			a := s.do("POST", "/v1/orders", c.body, headers...).want(t, c.status, c.typ)
			if a.problem.Detail == "" || a.problem.Title == "" {
				t.Errorf("it does not say what is wrong: %s", a.body)
			}
		})
	}
	var rows int
	err := s.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM orders) + (SELECT count(*) FROM idempotency_keys)`).Scan(&rows)
	if err != nil || rows != 0 {
		t.Errorf("%d rows were left, %v", rows, err)
	}
}

func TestRefusals_PointToTheInvalidMember(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.do("POST", "/v1/orders", orderOf(line("coffee", "1"), line("tea", "0")), "Idempotency-Key: k").want(t, 422, api.TypeInvalidRequest)
	if a.problem.Pointer != "/lines/1/quantity" {
		t.Errorf("pointer: %s", a.body)
	}
}

// For JSON Schema 2.0 is the integer 2. A text stays as it is.
func TestBuy_AnIntegerMayHaveAFractionOfZeros(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.buy("k", "coffee", "2").want(t, 201, "")
	for _, quantity := range []string{"2.0", "2.000"} {
		if again := s.buy("k", "coffee", quantity).want(t, 201, ""); string(again.body) != string(first.body) {
			t.Errorf("%s: %s, want %s", quantity, again.body, first.body)
		}
	}
	if a := s.buy("k2", `2.0\"3.0`, "1"); a.status != 422 {
		t.Errorf("a sku with a quote: %d %s", a.status, a.body)
	}
	s.buy("k3", "2.0", "1").want(t, 404, api.TypeNotFound)
	if d := s.buy("k3", "2.0", "1").problem.Sku; d != "2.0" {
		t.Errorf("the sku became %q", d)
	}
}

func TestBuy_TwentyLinesAndAMillionAreAccepted(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.do("POST", "/v1/orders", manyLines(20), "Idempotency-Key: k").want(t, 404, api.TypeNotFound) // valid, though unknown
	s.buy("k", "coffee", "1000000").want(t, 409, api.TypeOutOfStock)
}

// RFC 8259 does not define which of two equal member names counts.
func TestRefusals_OfDuplicateMembers(t *testing.T) {
	t.Parallel()
	s := open(t)
	one := line("coffee", "1")
	for i, body := range []string{
		orderOf(`{"sku":"coffee","quantity":0,"quantity":3}`),
		orderOf(`{"sku":"coffee","quantity":1,"quantity":1}`),
		orderOf(`{"sku":"coffee","quantity":1,"quan\u0074ity":2}`),
		orderOf(one, `{"sku":"tea","quantity":1,"sku":"coffee"}`),
		`{"lines":[` + one + `],"lines":[` + line("tea", "1") + `]}`,
		`{"lines":[],"x":{"lines":{}},"lines":[` + one + `]}`,
	} {
		a := s.do("POST", "/v1/orders", body, fmt.Sprintf("Idempotency-Key: k%d", i)).want(t, 400, api.TypeMalformed)
		if !strings.Contains(a.problem.Detail, "twice") {
			t.Errorf("%s: %s", body, a.problem.Detail)
		}
	}
	s.wantStock("coffee", 100)
	s.do("POST", "/v1/orders", orderOf(one, line("tea", "2")), "Idempotency-Key: k0").want(t, 201, "") // the same names, in two objects
}
