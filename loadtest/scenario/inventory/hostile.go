// SPDX-License-Identifier: MIT

package inventory

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/traffic"
)

// One in offenceEvery purchases comes with an offence. Each kind of attack follows one in attackEvery purchases.
const (
	offenceEvery = 50
	attackEvery  = 30
)

// offence returns a request about an order or a product that does not exist, or a purchase in two currencies, which is
// invalid.
func offence(k int, client int, key string, none uuid.UUID) *traffic.Intent {
	order := traffic.Record{Intent: traffic.Intent{Of: []Stock{priced(0, 1)}}, Made: none}
	kinds := []*traffic.Intent{
		readIntent(key, client, Read{Order: none}).Denied("not-found"),
		cancelIntent(key, client, order).Denied("not-found"),
		buyIntent(key, client, Stock{SKU: "no-such", Quantity: 1}).Denied("not-found"),
		readIntent(key, client, Read{SKU: "no-such"}).Denied("not-found"),
		buyIntent(key, client, priced(0, 1), priced(drops-1, 1)).Denied("invalid-request"),
	}
	return kinds[k%len(kinds)]
}

// attacks are the requests that are not allowed after a purchase or a cancellation.
var attacks = map[traffic.Action][]traffic.Forbidden{
	Buy:    {strangerReads, strangerCancels, reusedForCart, reusedForCancel},
	Cancel: {strangerReads, cancelAgain},
}

// followUp returns the requests that an answer leads to. The buyer reads each order. Some are attacked. Some orders are
// cancelled twice at once, and once more after that, and then their unit is bought again.
func followUp(r traffic.Record) (next []traffic.ScheduledRequest) {
	random := traffic.RandomFor(r.Key)
	add := func(i *traffic.Intent) { next = append(next, traffic.Soon(random, i)) }
	ok, planned := r.Outcome == traffic.OK, strings.HasPrefix(r.Key, "buy-")
	switch {
	case planned && ok:
		add(readIntent("read-"+r.Key, r.Client, Read{Order: r.Made}))
		if random.IntN(attackEvery) == 0 {
			return append(next, twice(random, r)...)
		}
		return append(next, traffic.OneOf(random, attackEvery, r, attacks[Buy]...)...)
	case planned && r.Refused("out-of-stock"):
		return traffic.OneOf(random, attackEvery, r, reusedForCart)
	case r.Action == Cancel && ok && strings.HasPrefix(r.Key, "twice-"):
		add(cancelAgain(r))
		first := random.IntN(replicas)
		for n := range replicas { // at each replica: one of them may have kept the order as it was
			add(readIntent(fmt.Sprintf("read-%d-%s", n, r.Key), r.Client, Read{Order: r.Made}))
			next[len(next)-1].Replica = first + n
		}
		add(buyIntent("again-"+r.Key, r.Client, cart(r.Intent)...))
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
	return buyIntent("reuse-"+r.Key, r.Client, lines...).Reusing(r)
}

// reusedForCancel cancels an order under the key of its purchase.
func reusedForCancel(bought traffic.Record) *traffic.Intent {
	return cancelIntent("reuse-cancel-"+bought.Key, bought.Client, bought).Reusing(bought)
}
