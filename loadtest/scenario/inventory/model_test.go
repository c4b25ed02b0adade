// SPDX-License-Identifier: MIT

package inventory

import (
	"fmt"
	"testing"

	"shop/loadtest/linear"
)

// buys is a purchase; its key is the id of its order.
func buys(key string, call, end int64, lines string) linear.Operation {
	return linear.Operation{
		Key: key, Action: "buy", Method: "POST", Path: "/v1/orders", Body: []byte(`{"lines":[` + lines + `]}`),
		Call: call, Return: end, Outcome: linear.OK, Answer: []byte(`{"id":"` + key + `"}`), Objects: []string{"cup"},
	}
}

func cup(n int) string { return fmt.Sprintf(`{"sku":"cup","quantity":%d}`, n) }

// cancels is a cancellation of an order.
func cancels(order string, call, end int64) linear.Operation {
	return linear.Operation{
		Key: fmt.Sprintf("cancel-%s-%d", order, call), Action: "cancel", Method: "POST", Path: "/v1/orders/" + order + "/cancel",
		Call: call, Return: end, Outcome: linear.OK, Answer: []byte(`{"id":"` + order + `"}`), Objects: []string{"cup"},
	}
}

// reads is a read with its answer.
func reads(path string, call, end int64, answer string) linear.Operation {
	return linear.Operation{Key: "read", Method: "GET", Path: path, Reads: true, Call: call, Return: end, Outcome: linear.OK, Answer: []byte(answer)}
}

func left(call, end int64, n int) linear.Operation {
	return reads("/v1/products/cup", call, end, fmt.Sprintf(`{"sku":"cup","stock":%d}`, n))
}

// refused is an operation with this problem for an answer.
func refused(o linear.Operation, problem, answer string) linear.Operation {
	o.Outcome, o.Problem, o.Answer = linear.Rejected, problem, []byte(answer)
	return o
}

// undecided is an operation without an answer, with its effect in the database.
func undecided(o linear.Operation, effect linear.Effect) linear.Operation {
	o.Outcome, o.Answer, o.Return, o.Effect = "unknown", nil, 0, effect
	return o
}

// shows is an operation with an effect in the database that contradicts its answer.
func shows(o linear.Operation, effect linear.Effect) linear.Operation {
	o.Effect = effect
	return o
}

func open(o linear.Operation) linear.Operation {
	o.Outcome, o.Problem, o.Answer = linear.Open, "busy", nil
	return o
}

func TestLinearize_AUnitIsSoldAndReturnedOnce(t *testing.T) {
	for _, c := range []struct {
		name  string
		legal bool
		ops   []linear.Operation // of 3 cups and 1 pot
	}{
		{"sold to the last", true, []linear.Operation{buys("a", 1, 9, cup(2)), buys("b", 2, 9, cup(1)), left(3, 4, 3), left(10, 11, 0)}},
		{"oversold", false, []linear.Operation{buys("a", 1, 9, cup(2)), buys("b", 2, 9, cup(2))}},
		{"lost update", false, []linear.Operation{buys("a", 1, 9, cup(1)), buys("b", 2, 9, cup(1)), left(10, 11, 2)}},
		{"stale read", false, []linear.Operation{buys("a", 1, 2, cup(1)), left(3, 4, 3)}},
		{"a list is a read of each product", false, []linear.Operation{
			buys("a", 1, 2, cup(1)), reads("/v1/products", 3, 4, `{"products":[{"sku":"cup","stock":3},{"sku":"pot","stock":1}]}`),
		}},
		{"refused rightly", true, []linear.Operation{buys("a", 1, 2, cup(2)), refused(buys("b", 3, 4, cup(2)), "out-of-stock", `{"sku":"cup","left":1}`)}},
		{"refused although there was enough", false, []linear.Operation{buys("a", 1, 2, cup(1)), refused(buys("b", 3, 4, cup(2)), "out-of-stock", `{"sku":"cup","left":1}`)}},
		{"refused with an impossible number", false, []linear.Operation{buys("a", 1, 2, cup(2)), refused(buys("b", 3, 4, cup(2)), "out-of-stock", `{"sku":"cup","left":0}`)}},
		{"two products, of which the other is short", true, []linear.Operation{
			buys("a", 1, 2, cup(1)), refused(buys("b", 3, 4, cup(1)+`,{"sku":"pot","quantity":2}`), "out-of-stock", `{"sku":"pot","left":1}`),
		}},
		{"two products, each taken", false, []linear.Operation{buys("a", 1, 2, cup(1)+`,{"sku":"pot","quantity":1}`), reads("/v1/products/pot", 3, 4, `{"sku":"pot","stock":1}`)}},
		{"never valid", true, []linear.Operation{refused(buys("a", 1, 2, cup(1)), "idempotency-key-reused", `{}`), refused(buys("b", 1, 2, ``), "invalid-request", `{}`), left(3, 4, 3)}},
		{"cancelled", true, []linear.Operation{buys("a", 1, 2, cup(3)), cancels("a", 3, 4), left(5, 6, 3)}},
		{"cancelled twice", false, []linear.Operation{buys("a", 1, 2, cup(3)), cancels("a", 3, 9), cancels("a", 4, 9)}},
		{"returned twice", false, []linear.Operation{buys("a", 1, 2, cup(1)), buys("b", 1, 2, cup(1)), cancels("a", 3, 4), left(5, 6, 3)}},
		{"cancelled before", true, []linear.Operation{buys("a", 1, 2, cup(3)), cancels("a", 3, 9), refused(cancels("a", 4, 8), "already-cancelled", `{}`)}},
		{"not cancelled before", false, []linear.Operation{buys("a", 1, 2, cup(3)), refused(cancels("a", 3, 4), "already-cancelled", `{}`)}},
		{"a missing order", true, []linear.Operation{refused(cancels("z", 1, 2), "not-found", `{}`)}},
		{"cancelled an order that no answer returned", false, []linear.Operation{cancels("z", 1, 2)}},
		{"an order as it is", true, []linear.Operation{buys("a", 1, 2, cup(1)), reads("/v1/orders/a", 3, 4, `{"status":"confirmed"}`), cancels("a", 5, 6), reads("/v1/orders/a", 7, 8, `{"status":"cancelled"}`)}},
		{"an order as it was", false, []linear.Operation{buys("a", 1, 2, cup(1)), cancels("a", 5, 6), reads("/v1/orders/a", 7, 8, `{"status":"confirmed"}`)}},
		{"an unknown that happened", true, []linear.Operation{undecided(buys("a", 1, 0, cup(1)), linear.Yes), left(5, 6, 2)}},
		{"an unknown that happened is not seen", true, []linear.Operation{undecided(buys("a", 1, 0, cup(1)), linear.Yes), left(5, 6, 3)}},
		{"an unknown that did not happen is seen", false, []linear.Operation{undecided(buys("a", 1, 0, cup(1)), linear.No), left(5, 6, 2)}},
		{"an unknown that may have happened", true, []linear.Operation{undecided(buys("a", 1, 0, cup(1)), linear.NotKnown), left(5, 6, 2)}},
		{"an unknown that happened and oversold", false, []linear.Operation{undecided(buys("a", 1, 0, cup(2)), linear.Yes), buys("b", 1, 2, cup(2))}},
		{"an unknown cancellation", true, []linear.Operation{buys("a", 1, 2, cup(1)), undecided(cancels("a", 3, 0), linear.Yes), left(5, 6, 3)}},
		{"abandoned", true, []linear.Operation{shows(open(buys("a", 1, 2, cup(1))), linear.No), left(5, 6, 3)}},
		{"abandoned, but with an effect", false, []linear.Operation{shows(open(buys("a", 1, 2, cup(1))), linear.Yes)}},
		{"refused, but with an effect", false, []linear.Operation{shows(refused(buys("a", 1, 2, cup(9)), "out-of-stock", `{"sku":"cup","left":3}`), linear.Yes)}},
		{"forbidden, but with an effect", false, []linear.Operation{buys("a", 1, 2, cup(1)), shows(refused(cancels("a", 3, 4), "not-found", `{}`), linear.Yes)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := linear.History{Operations: c.ops}
			h.Header.Given = []byte(`[{"SKU":"cup","Quantity":3},{"SKU":"pot","Quantity":1}]`)
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

func TestLinearize_AMalformedPlanIsAnError(t *testing.T) {
	if _, err := linearize(linear.History{}); err == nil {
		t.Error("a history without the plan's products is checked")
	}
}
