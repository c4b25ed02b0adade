package loadtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// Products go on sale one after the other, as in a flash sale: at any time
// there are two of them that everyone wants, and there is something to sell
// until the end, so that a fault at any time can be followed by a success.
const drops = 10

// NewInventoryPlan draws a plan.
//
// What is there is half of what is asked for, or less; and never more than is
// asked for in orders of a single unit. So everything must be sold in whatever
// order the requests are decided: if a unit were left, no order of one unit
// could have been refused, so all of them were sold, which is at least the
// stock. (A cart of two can rightly leave one unit behind; a service that
// refuses although there is stock is not hidden behind that.)
func NewInventoryPlan(load Load) Plan {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 0))
	wanted, single := make([]int64, drops), make([]int64, drops)
	plan := Plan{Clients: 1}
	n := int(load.Duration.Seconds() * float64(load.Rate))
	for i := range n {
		at := load.at(i, n)
		cart := drawCart(random, onSale(at, load.Duration))
		for _, line := range cart {
			wanted[line.drop] += line.units
		}
		if len(cart) == 1 && cart[0].units == 1 {
			single[cart[0].drop]++
		}
		intent := buyIntent(fmt.Sprintf("buy-%d-%06d", load.Seed, i), cart)
		plan.Intents = append(plan.Intents, intent)
		replica := random.IntN(load.Replicas)
		plan.Shots = append(plan.Shots, Shot{at, replica, intent})
		if i%twinEvery == 0 {
			other := (replica + 1 + random.IntN(max(1, load.Replicas-1))) % load.Replicas
			plan.Shots = append(plan.Shots, Shot{at, other, intent})
		}
	}
	for d := range drops {
		plan.Stock = append(plan.Stock, Stock{sku(d), min(wanted[d]/2, single[d])})
	}
	return plan
}

// onSale gives the two products that are on sale at a moment.
func onSale(at, duration time.Duration) [2]int {
	slot := int(at * (drops - 1) / duration) // 0 … drops-2
	return [2]int{slot, slot + 1}
}

type line struct {
	drop  int
	units int64
}

// drawCart is mostly one unit of one product; sometimes more units, sometimes
// both products, which have to be locked in one order everywhere.
func drawCart(random *rand.Rand, drops [2]int) []line {
	one := random.IntN(2)
	switch kind := random.IntN(100); {
	case kind < 70:
		return []line{{drops[one], 1}}
	case kind < 85:
		return []line{{drops[one], 2 + random.Int64N(2)}}
	default:
		return []line{{drops[one], 1}, {drops[1-one], 1}} // as often in the wrong order as in the right one
	}
}

func sku(drop int) string { return fmt.Sprintf("drop-%02d", drop) }

func buyIntent(key string, cart []line) *Intent {
	i := &Intent{Key: key, Action: Buy, Method: http.MethodPost, Path: "/v1/orders"}
	for _, l := range cart {
		i.Lines = append(i.Lines, Stock{sku(l.drop), l.units})
	}
	i.Body = buyBody(i.Lines)
	return i
}

func buyBody(lines []Stock) []byte {
	type item struct {
		SKU      string `json:"sku"`
		Quantity int64  `json:"quantity"`
	}
	order := struct {
		Lines []item `json:"lines"`
	}{}
	for _, l := range lines {
		order.Lines = append(order.Lines, item(l))
	}
	return encode(order)
}
