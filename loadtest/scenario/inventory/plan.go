package inventory

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"shop/loadtest"
)

// The actions of this flow.
const (
	Buy    loadtest.Action = "buy"
	Cancel loadtest.Action = "cancel"
)

// Stock is a product as it was before the first request.
type Stock struct {
	SKU      string
	Quantity int64
}

// Products are what a plan puts on the shelves.
func Products(p loadtest.Plan) []Stock {
	given, _ := p.Given.([]Stock)
	return given
}

// units is all that is there.
func units(p loadtest.Plan) (n int64) {
	for _, s := range Products(p) {
		n += s.Quantity
	}
	return n
}

// cart is what a purchase asks for, or a cancellation gives back.
func cart(i loadtest.Intent) []Stock {
	lines, _ := i.Of.([]Stock)
	return lines
}

// Products go on sale one after the other, as in a flash sale: at any time
// there are two of them that every buyer wants, and there is something to sell
// until the end, so that a fault at any time can be followed by a success.
const drops = 10

// NewPlan draws a plan.
//
// What is there is half of what is asked for, or less; and never more than is
// asked for in orders of a single unit. So everything must be sold in whatever
// order the requests are decided: if a unit were left, no order of one unit
// could have been refused, so all of them were sold, which is at least the
// stock. (A cart of two can rightly leave one unit behind; a service that
// refuses although there is stock is not hidden behind that.)
func NewPlan(load loadtest.Load) loadtest.Plan {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 0))
	wanted, single := make([]int64, drops), make([]int64, drops)
	plan := loadtest.Plan{Clients: 1}
	n := int(load.Duration.Seconds() * float64(load.Rate))
	for i := range n {
		at := load.At(i, n)
		want := drawCart(random, onSale(at, load.Duration))
		for _, line := range want {
			wanted[line.drop] += line.units
		}
		if len(want) == 1 && want[0].units == 1 {
			single[want[0].drop]++
		}
		intent := buyIntent(fmt.Sprintf("buy-%d-%06d", load.Seed, i), want)
		plan.Add(random, load.Replicas, loadtest.ScheduledRequest{At: at, Replica: random.IntN(load.Replicas), Intent: intent})
	}
	var given []Stock
	for d := range drops {
		given = append(given, Stock{sku(d), min(wanted[d]/2, single[d])})
	}
	plan.Given = given
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

func buyIntent(key string, cart []line) *loadtest.Intent {
	var lines []Stock
	for _, l := range cart {
		lines = append(lines, Stock{sku(l.drop), l.units})
	}
	return intend(key, Buy, "/v1/orders", lines, buyBody(lines))
}

// intend is a purchase or a cancellation of some lines.
func intend(key string, action loadtest.Action, path string, lines []Stock, body []byte) *loadtest.Intent {
	i := &loadtest.Intent{Key: key, Action: action, Method: http.MethodPost, Path: path, Body: body, Of: lines, Ends: action == Cancel}
	for _, l := range lines {
		i.Contends = append(i.Contends, l.SKU)
	}
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
	return loadtest.Encode(order)
}
