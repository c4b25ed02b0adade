// SPDX-License-Identifier: MIT

package transfer

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"shop/loadtest/linear"
	"shop/loadtest/scenario/money"
)

// The accounts of these histories: two of a group, with 100 and 0, and one of another group.
var (
	rich  = uuid.MustParse("00000000-0000-4000-8000-00000000000a")
	broke = uuid.MustParse("00000000-0000-4000-8000-00000000000b")
	alone = uuid.MustParse("00000000-0000-4000-8000-00000000000c")
)

const second = int64(1e9)

// pays is a transfer from rich to broke, or a hold if it lasts; its key is its id.
func pays(key string, call, end, amount int64, lasts string) linear.Operation {
	body, _ := json.Marshal(map[string]any{"from": rich, "to": broke, "amount": amount, "currency": "EUR", "pending": lasts != "", "expires_in": lasts})
	return linear.Operation{
		Key: key, Action: "pay", Method: "POST", Path: "/v1/transfers", Body: body, Objects: []string{rich.String(), broke.String()},
		Call: call, Return: end, Outcome: linear.OK, Answer: []byte(`{"id":"` + key + `"}`),
	}
}

// paysBack is a transfer the other way.
func paysBack(key string, call, end, amount int64) linear.Operation {
	o := pays(key, call, end, amount, "")
	o.Body = []byte(strings.NewReplacer(rich.String(), broke.String(), broke.String(), rich.String()).Replace(string(o.Body)))
	return o
}

// ending posts or voids a hold.
func ending(action, hold string, call, end int64, body string) linear.Operation {
	return linear.Operation{
		Key: action + "-" + hold, Action: action, Method: "POST", Path: "/v1/transfers/" + hold + "/" + action, Body: []byte(body),
		Call: call, Return: end, Outcome: linear.OK, Answer: []byte(`{}`), Objects: []string{rich.String(), broke.String()},
	}
}

// expires is the service's end of a hold, as the database shows it.
func expires(hold string, order int64) linear.Operation {
	return linear.Operation{Client: linear.Service, Key: "expire-" + hold, Action: "expire", Outcome: "unknown", Effect: linear.Yes, Stored: []byte(`{"id":"` + hold + `"}`), Order: order}
}

func holds(account uuid.UUID, call, end, balance, held int64) linear.Operation {
	return linear.Operation{
		Key: "read", Method: "GET", Path: "/v1/accounts/" + account.String(), Reads: true, Call: call, Return: end, Outcome: linear.OK,
		Answer: fmt.Appendf(nil, `{"balance":%d,"held":%d,"available":%d}`, balance, held, balance-held),
	}
}

func is(hold string, call, end int64, state string) linear.Operation {
	return linear.Operation{Key: "read", Method: "GET", Path: "/v1/transfers/" + hold, Reads: true, Call: call, Return: end, Outcome: linear.OK, Answer: []byte(`{"state":"` + state + `"}`)}
}

func turnedDown(o linear.Operation, problem, answer string) linear.Operation {
	o.Outcome, o.Problem, o.Answer = linear.Rejected, problem, []byte(answer)
	return o
}

func unanswered(o linear.Operation, effect linear.Effect, stored string) linear.Operation {
	o.Outcome, o.Answer, o.Return, o.Effect, o.Stored = "unknown", nil, 0, effect, linear.Raw([]byte(stored))
	return o
}

func dropped(o linear.Operation, effect linear.Effect) linear.Operation {
	o.Outcome, o.Answer, o.Effect = linear.Open, nil, effect
	return o
}

type history = []linear.Operation

func TestLinearize_MoneyMovesAtOneMoment(t *testing.T) {
	mustBe(t, []legality{
		{"paid", true, history{pays("a", 1, 5, 60, ""), holds(rich, 2, 3, 100, 0), holds(broke, 6, 7, 60, 0), holds(alone, 1, 2, 7, 0)}},
		{"paid twice", false, history{pays("a", 1, 5, 60, ""), pays("b", 2, 5, 60, "")}},
		{"lost update", false, history{pays("a", 1, 5, 10, ""), pays("b", 2, 5, 10, ""), holds(rich, 6, 7, 90, 0)}},
		{"stale read", false, history{pays("a", 1, 2, 10, ""), holds(broke, 3, 4, 0, 0)}},
		{"another account changed", false, history{pays("a", 1, 2, 10, ""), holds(alone, 3, 4, 8, 0)}},
		{"at two moments", false, history{ // correct for each account alone
			pays("a", 1, 20, 10, ""), holds(rich, 2, 3, 90, 0), holds(broke, 4, 5, 0, 0),
		}},
		{"refused rightly", true, history{pays("a", 1, 5, 60, ""), turnedDown(pays("b", 2, 6, 50, ""), "insufficient-funds", `{"available":40}`)}},
		{"refused although there was enough", false, history{pays("a", 1, 5, 60, ""), turnedDown(pays("b", 2, 6, 40, ""), "insufficient-funds", `{"available":40}`)}},
		{"refused with an impossible number", false, history{pays("a", 1, 5, 60, ""), turnedDown(pays("b", 2, 6, 50, ""), "insufficient-funds", `{"available":30}`)}},
		{"paid from an incoming payment", true, history{paysBack("b", 1, 9, 60), pays("a", 2, 8, 60, "")}},
		{"paid from a later payment", false, history{paysBack("b", 1, 2, 60), pays("a", 3, 4, 60, "")}},
		{"forbidden", true, history{turnedDown(pays("a", 1, 2, 60, ""), "forbidden", `{}`), holds(rich, 3, 4, 100, 0)}},
		{"an unknown that happened", true, history{unanswered(pays("a", 1, 0, 60, ""), linear.Yes, `{"id":"a"}`), holds(rich, 3, 4, 40, 0)}},
		{"an unknown that did not happen is seen", false, history{unanswered(pays("a", 1, 0, 60, ""), linear.No, ""), holds(rich, 3, 4, 40, 0)}},
		{"an unknown that may have happened", true, history{unanswered(pays("a", 1, 0, 60, ""), linear.NotKnown, ""), holds(rich, 3, 4, 40, 0)}},
		{"abandoned", true, history{dropped(pays("a", 1, 2, 60, ""), linear.No), holds(rich, 3, 4, 100, 0)}},
		{"abandoned, but with an effect", false, history{dropped(pays("a", 1, 2, 60, ""), linear.Yes)}},
	})
}

func TestLinearize_AHoldEndsOnce(t *testing.T) {
	mustBe(t, []legality{
		{"held", true, history{pays("h", 1, 2, 60, "1s"), holds(rich, 3, 4, 100, 60), is("h", 3, 4, "reserved"), turnedDown(pays("a", 3, 4, 50, ""), "insufficient-funds", `{"available":40}`)}},
		{"held money spent", false, history{pays("h", 1, 2, 60, "1s"), pays("a", 3, 4, 50, "")}},
		{"posted", true, history{pays("h", 1, 2, 60, "1s"), ending("post", "h", 3, 4, ""), holds(rich, 5, 6, 40, 0), holds(broke, 5, 6, 60, 0), is("h", 5, 6, "posted")}},
		{"posted in part", true, history{pays("h", 1, 2, 60, "1s"), ending("post", "h", 3, 4, `{"amount":20}`), holds(rich, 5, 6, 80, 0), holds(broke, 5, 6, 20, 0)}},
		{"posted in part, but moved in full", false, history{pays("h", 1, 2, 60, "1s"), ending("post", "h", 3, 4, `{"amount":20}`), holds(broke, 5, 6, 60, 0)}},
		{"voided", true, history{pays("h", 1, 2, 60, "1s"), ending("void", "h", 3, 4, ""), holds(rich, 5, 6, 100, 0)}},
		{"posted and voided", false, history{pays("h", 1, 2, 60, "1s"), ending("post", "h", 3, 9, ""), ending("void", "h", 3, 9, "")}},
		{"posted, and the void refused", true, history{pays("h", 1, 2, 60, "1s"), ending("post", "h", 3, 9, ""), turnedDown(ending("void", "h", 3, 9, ""), "already-settled", `{}`)}},
		{"refused as settled, but not settled", false, history{pays("h", 1, 2, 60, "1s"), turnedDown(ending("void", "h", 3, 9, ""), "already-settled", `{}`)}},
		{"expired", true, history{pays("h", 1, 2, 60, "1s"), expires("h", 0), holds(rich, 2*second, 2*second, 100, 0), turnedDown(ending("post", "h", 2*second, 2*second, ""), "expired", `{}`)}},
		{"expired, as far as is known", true, history{pays("h", 1, 2, 60, "1s"), holds(rich, 2*second, 2*second, 100, 0)}},
		{"expired before its time", false, history{pays("h", 1, 2, 60, "1s"), expires("h", 0), holds(rich, second/2, second/2, 100, 0)}},
		{"refused as expired before its time", false, history{pays("h", 1, 2, 60, "1s"), expires("h", 0), turnedDown(ending("post", "h", 3, second/2, ""), "expired", `{}`)}},
		{"posted and expired", false, history{pays("h", 1, 2, 60, "1s"), ending("post", "h", 3, 2*second, ""), expires("h", 0)}},
		{"posted after its time", false, history{pays("h", 1, 2, 60, "1s"), ending("post", "h", 2*second, 3*second, "")}},
		{"posted in its last moment", true, history{pays("h", 1, second/2, 60, "1s"), ending("post", "h", second, 3*second, ""), holds(rich, 2*second, 2*second, 100, 60)}},
		{"an unknown hold that is posted", true, history{unanswered(pays("h", 1, 0, 60, "1s"), linear.Yes, `{"id":"h"}`), ending("post", "h", 3, 4, ""), holds(rich, 5, 6, 40, 0)}},
		{"an unknown post that happened", true, history{pays("h", 1, 2, 60, "1s"), unanswered(ending("post", "h", 3, 0, ""), linear.Yes, ""), holds(rich, 5, 6, 40, 0)}},
		{"an unknown post and a void", false, history{pays("h", 1, 2, 60, "1s"), unanswered(ending("post", "h", 3, 0, ""), linear.Yes, ""), ending("void", "h", 3, 9, "")}},
		{"a transfer that no answer returned", false, history{pays("a", 1, 2, 1, ""), ending("post", "z", 3, 4, "")}},
		{"settling a transfer that is no hold", true, history{pays("a", 1, 2, 60, ""), turnedDown(ending("void", "a", 3, 9, ""), "already-settled", `{}`), is("a", 3, 4, "posted")}},
	})
}

type legality struct {
	name  string
	legal bool
	ops   history
}

func mustBe(t *testing.T, cases []legality) {
	t.Helper()
	given, err := json.Marshal([]money.Account{{ID: rich, Opening: 100}, {ID: broke}, {ID: alone, Opening: 7}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := linear.History{Operations: c.ops}
			h.Header.Given = given
			partitions, err := linearize(h)
			if err != nil {
				t.Fatal(err)
			}
			if r := linear.Check(t.Context(), partitions, linear.Limits{}); (r.Illegal == 0) != c.legal || r.Undecided > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestLinearize_AccountsThatDoNotPayEachOtherAreApart(t *testing.T) {
	given, _ := json.Marshal([]money.Account{{ID: rich, Opening: 100}, {ID: broke}, {ID: alone}})
	h := linear.History{Operations: history{pays("a", 1, 2, 1, ""), holds(alone, 1, 2, 0, 0)}}
	h.Header.Given = given
	partitions, err := linearize(h)
	if err != nil || len(partitions) != 2 || len(partitions[0].Parts) != 2 || len(partitions[1].Parts) != 0 {
		t.Errorf("%v: %+v", err, partitions)
	}
	if _, err := linearize(linear.History{}); err == nil {
		t.Error("a history without the plan's accounts is checked")
	}
}
