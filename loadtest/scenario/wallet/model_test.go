// SPDX-License-Identifier: MIT

package wallet

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/uuid"

	"shop/loadtest/linear"
	"shop/loadtest/scenario/money"
)

// The wallets of these histories, with 100 and 0.
var (
	full  = uuid.MustParse("00000000-0000-4000-8000-00000000000a")
	empty = uuid.MustParse("00000000-0000-4000-8000-00000000000b")
)

// does is an operation of a wallet. A payment goes to empty.
func does(what string, wallet uuid.UUID, call, end, amount, bonus int64) linear.Operation {
	return linear.Operation{
		Key: fmt.Sprintf("%s-%d", what, call), Action: what, Method: "POST", Path: "/v1/wallets/" + wallet.String() + "/" + what,
		Body: fmt.Appendf(nil, `{"amount":%d,"to":"%s"}`, amount, empty), Call: call, Return: end,
		Outcome: linear.OK, Answer: fmt.Appendf(nil, `{"bonus":%d}`, bonus), Objects: []string{wallet.String()},
	}
}

func shown(wallet uuid.UUID, call, end, balance int64) linear.Operation {
	return linear.Operation{
		Key: "read", Method: "GET", Path: "/v1/wallets/" + wallet.String(), Reads: true, Call: call, Return: end,
		Outcome: linear.OK, Answer: fmt.Appendf(nil, `{"balance":%d}`, balance),
	}
}

func denied(o linear.Operation, problem, answer string) linear.Operation {
	o.Outcome, o.Problem, o.Answer = linear.Rejected, problem, []byte(answer)
	return o
}

func lost(o linear.Operation, effect linear.Effect, stored string) linear.Operation {
	o.Outcome, o.Answer, o.Return, o.Effect, o.Stored = "unknown", nil, 0, effect, linear.Raw([]byte(stored))
	return o
}

func TestLinearize_ABalanceIsTheSumOfItsOperations(t *testing.T) {
	type history = []linear.Operation
	gaveUp := does("debits", full, 1, 2, 10, 0)
	gaveUp.Outcome, gaveUp.Effect = linear.Open, linear.Yes
	for _, c := range []struct {
		name  string
		legal bool
		fault string
		ops   history
	}{
		{"credited with its bonus", true, "", history{does("credits", full, 1, 5, 10, 3), shown(full, 2, 3, 100), shown(full, 6, 7, 113)}},
		{"a missing bonus", false, "", history{does("credits", full, 1, 5, 10, 3), shown(full, 6, 7, 110)}},
		{"lost update", false, "", history{does("credits", full, 1, 5, 10, 0), does("credits", full, 2, 5, 10, 0), shown(full, 6, 7, 110)}},
		{"overdrawn", false, "", history{does("debits", full, 1, 5, 60, 0), does("debits", full, 2, 5, 60, 0)}},
		{"paid", true, "", history{does("payments", full, 1, 5, 60, 0), shown(full, 6, 7, 40), shown(empty, 6, 7, 60)}},
		{"paid at two moments", false, "", history{does("payments", full, 1, 9, 60, 0), shown(full, 2, 3, 40), shown(empty, 4, 5, 0)}},
		{"refused rightly", true, "", history{does("debits", full, 1, 5, 60, 0), denied(does("debits", full, 2, 5, 60, 0), money.Short, `{"available":40}`)}},
		{"refused although there was enough", false, "", history{denied(does("debits", full, 2, 5, 60, 0), money.Short, `{"available":40}`)}},
		{"another client's key", true, "", history{denied(does("debits", full, 2, 5, 60, 0), "idempotency-key-reused", `{}`), shown(full, 6, 7, 100)}},
		{"stale read", false, "none", history{does("debits", full, 1, 2, 60, 0), shown(full, 3, 4, 100)}},
		{"stale read of a deposed primary", true, "step-down", history{does("debits", full, 1, 2, 60, 0), shown(full, 3, 4, 100)}},
		{"a state that never was, under a deposed primary", false, "step-down", history{does("debits", full, 1, 2, 60, 0), shown(full, 3, 4, 90)}},
		{"an unknown credit that happened", true, "", history{lost(does("credits", full, 1, 0, 10, 0), linear.Yes, `{"bonus":3}`), shown(full, 3, 4, 113)}},
		{"an unknown credit that did not happen is seen", false, "", history{lost(does("credits", full, 1, 0, 10, 0), linear.No, ""), shown(full, 3, 4, 113)}},
		{"an unknown credit with an unknown bonus", true, "", history{lost(does("credits", full, 1, 0, 10, 0), linear.NotKnown, ""), shown(full, 3, 4, 113), shown(full, 1, 2, 100)}},
		{"abandoned, but with an effect", false, "", history{gaveUp}},
	} {
		t.Run(c.name, func(t *testing.T) {
			given, err := json.Marshal([]money.Account{{ID: full, Opening: 100}, {ID: empty}})
			if err != nil {
				t.Fatal(err)
			}
			partitions, err := linearize(linear.History{Header: linear.Header{Fault: c.fault, Given: given}, Operations: c.ops})
			if err != nil {
				t.Fatal(err)
			}
			if r := linear.Check(t.Context(), partitions, linear.Limits{}); (r.Illegal == 0) != c.legal || r.Undecided > 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	if _, err := linearize(linear.History{}); err == nil {
		t.Error("a history without the plan's wallets is checked")
	}
}
