// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"shop/loadtest/traffic"
)

// missingEvery: one in this many purchases comes with a request about an object that does not exist.
const missingEvery = 50

// missing returns requests about orders and products that do not exist, and purchases in two
// currencies, which are invalid.
func missing(random *rand.Rand, load traffic.Load, n int) (requests []traffic.ScheduledRequest) {
	for i := 0; i < n; i += missingEvery {
		none := traffic.Record{Made: traffic.DrawID(random)}
		none.Of = []Stock{priced(0, 1)}
		key, client := fmt.Sprintf("absent-%d-%06d", load.Seed, i), random.IntN(clients)
		unknown, mixed := []Stock{{SKU: "no-such", Quantity: 1}}, []Stock{priced(0, 1), priced(drops-1, 1)}
		intent := []*traffic.Intent{
			readIntent(key, client, Read{Order: none.Made}).Denied("not-found"),
			cancelIntent(key, client, none).Denied("not-found"),
			intend(key, client, Buy, "/v1/orders", unknown, buyBody(unknown)).Denied("not-found"),
			readIntent(key, client, Read{SKU: "no-such"}).Denied("not-found"),
			intend(key, client, Buy, "/v1/orders", mixed, buyBody(mixed)).Denied("invalid-request"),
		}[i/missingEvery%5]
		requests = append(requests, traffic.ScheduledRequest{At: load.At(i, n), Replica: random.IntN(load.Replicas), Intent: intent})
	}
	return requests
}

// attackEvery: each kind of forbidden request follows one in this many purchases.
const attackEvery = 30

// followUp returns the requests that an answer leads to. The buyer reads each order. Another
// client reads or cancels some orders. Some keys are reused for another cart or for a
// cancellation. Some orders are cancelled twice at once, and once more after that, and
// then their unit is bought again.
func followUp(r traffic.Record) (next []traffic.ScheduledRequest) {
	random := traffic.RandomFor(r.Key)
	add := func(i *traffic.Intent) {
		next = append(next, traffic.Soon(random, i))
	}
	ok := r.Outcome == traffic.OK
	switch planned := strings.HasPrefix(r.Key, "buy-"); {
	case r.Action == Buy && ok && planned:
		add(readIntent("read-"+r.Key, r.Client, Read{Order: r.Made}))
		switch random.IntN(attackEvery) {
		case 0:
			return append(next, twice(random, r)...)
		case 1:
			add(strangerReads(r))
		case 2:
			add(strangerCancels(r))
		case 3:
			add(reusedForCart(r))
		case 4:
			add(reusedForCancel(r))
		}
	case r.Refused("out-of-stock") && planned && random.IntN(attackEvery) == 0:
		add(reusedForCart(r))
	case r.Action == Cancel && ok && strings.HasPrefix(r.Key, "twice-"):
		add(cancelAgain(r))
		first := random.IntN(replicas)
		for n := range replicas { // at each replica: one of them may have kept the order as it was
			read := traffic.Soon(random, readIntent(fmt.Sprintf("read-%d-%s", n, r.Key), r.Client, Read{Order: r.Made}))
			read.Replica = first + n
			next = append(next, read)
		}
		lines := cart(r.Intent)
		add(intend("again-"+r.Key, r.Client, Buy, "/v1/orders", lines, buyBody(lines)))
	}
	return next
}

// replicas is how many replicas read a cancelled order, as many as a proof starts by default.
const replicas = 3

// beforeCancel is the time for the read of an order that is then cancelled.
const beforeCancel = 100 * time.Millisecond

// twice cancels an order of one unit under two keys at the same moment, on two replicas. It
// returns nothing for a larger order.
func twice(random *rand.Rand, bought traffic.Record) []traffic.ScheduledRequest {
	if lines := cart(bought.Intent); len(lines) > 1 || lines[0].Quantity > 1 {
		return nil
	}
	one := traffic.Soon(random, cancelIntent("twice-a-"+bought.Key, bought.Client, bought))
	one.At += beforeCancel
	other := traffic.ScheduledRequest{At: one.At, Replica: one.Replica + 1, Intent: cancelIntent("twice-b-"+bought.Key, bought.Client, bought)}
	return []traffic.ScheduledRequest{one, other}
}

func stranger(r traffic.Record) int { return (r.Client + 1) % clients }

func strangerReads(bought traffic.Record) *traffic.Intent {
	return readIntent("spy-"+bought.Key, stranger(bought), Read{Order: bought.Made}).Denied("not-found")
}

func strangerCancels(bought traffic.Record) *traffic.Intent {
	return cancelIntent("steal-"+bought.Key, stranger(bought), bought).Denied("not-found")
}

// cancelAgain cancels a cancelled order under a new key.
func cancelAgain(cancelled traffic.Record) *traffic.Intent {
	return cancelIntent("more-"+cancelled.Key, cancelled.Client, cancelled).Denied("already-cancelled")
}

// reusedForCart buys one unit more under a decided key.
func reusedForCart(r traffic.Record) *traffic.Intent {
	lines := slices.Clone(cart(r.Intent))
	lines[0].Quantity++
	i := intend("reuse-"+r.Key, r.Client, Buy, "/v1/orders", lines, buyBody(lines))
	i.SharedKey = r.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// reusedForCancel cancels an order under the key of its purchase.
func reusedForCancel(bought traffic.Record) *traffic.Intent {
	i := cancelIntent("reuse-cancel-"+bought.Key, bought.Client, bought)
	i.SharedKey = bought.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// offend sends, after the load, each kind of forbidden request for a confirmed and a cancelled
// order. I-DENY checks the answers.
func offend(ctx context.Context, run *traffic.Run) {
	send := func(from traffic.Record, kinds ...func(traffic.Record) *traffic.Intent) {
		for n, kind := range kinds {
			run.Settle(ctx, n, kind(from))
		}
	}
	records := run.History.Records()
	last := func(prefix string) int {
		return slices.IndexFunc(records, func(r traffic.Record) bool { return r.Outcome == traffic.OK && strings.HasPrefix(r.Key, prefix) })
	}
	if bought := last("final-"); bought >= 0 {
		send(records[bought], strangerReads, strangerCancels, reusedForCart, reusedForCancel)
	}
	if cancelled := last("cancel-"); cancelled >= 0 {
		send(records[cancelled], strangerReads, cancelAgain)
	}
}
