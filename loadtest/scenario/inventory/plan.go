// SPDX-License-Identifier: MIT

package inventory

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/google/uuid"

	"shop/loadtest/traffic"
)

// The actions of this flow.
const (
	Buy          traffic.Action = "buy"
	Cancel       traffic.Action = "cancel"
	ReadProduct  traffic.Action = "read-product"
	ReadProducts traffic.Action = "read-products"
	ReadOrder    traffic.Action = "read-order"
)

// Stock is a product as it is before the first request, or a quantity of a product. Its name is its SKU.
type Stock struct {
	SKU       string
	Quantity  int64
	Price     int64 // of one unit
	Currency  string
	ClientMax int64 // a product's purchase limit for each client; 0: none
}

// Return is the object of a cancellation.
type Return struct {
	Order uuid.UUID
	Lines []Stock
}

// Read is the object of a read: a product, an order, or if neither is set all products.
type Read struct {
	SKU   string
	Order uuid.UUID
}

// Products returns the products that a plan puts on sale.
func Products(p traffic.Plan) []Stock {
	given, _ := p.Given.([]Stock)
	return given
}

// units returns the stock of all products of a plan.
func units(p traffic.Plan) (n int64) {
	for _, s := range Products(p) {
		n += s.Quantity
	}
	return n
}

// cart returns the lines that a purchase requests or a cancellation returns; nil for a read.
func cart(i traffic.Intent) []Stock {
	switch of := i.Of.(type) {
	case []Stock:
		return of
	case Return:
		return of.Lines
	}
	return nil
}

// The workload. Products go on sale in sequence, as in flash sales. At any time two
// of them are on sale, which all buyers want. Stock remains until the end, so that a
// fault at any time can be followed by a success.
const (
	clients = 5
	drops   = 10
	euros   = 5 // products priced in euros, the first ones; the others are in dollars
)

// unreached is the purchase limit of each fifth product: units of clients are counted under all faults (I-MAX), and no
// client has so many. Which requests a limit refuses is a question for the tests of inventory.
const unreached = 1_000_000

// A pair is on sale for at most dropEvery, or for dropLeast purchases if that is longer: a longer load has more
// products, so that there is never nothing to sell for long.
const (
	dropEvery = 3 * time.Second
	dropLeast = 225
)

// dropsIn returns the number of products in a load.
func dropsIn(load traffic.Load) int {
	return max(drops, 1+int(load.Duration/max(dropEvery, dropLeast*time.Second/time.Duration(max(1, load.Rate)))))
}

// NewPlan draws a plan.
//
// The stock of a product is at most half of the demand, and at most the demand in orders
// of a single unit that no client abandons. Therefore everything must be sold, in whatever
// order the requests are decided: if a unit were left, no order of one unit could have been
// refused, so all of them were sold, which is at least the stock. (A cart of two may rightly
// be refused while one unit is left; the orders of one unit then still have to take it. A
// cancelled order is of one unit, which is bought again afterwards: see followUp.)
func NewPlan(load traffic.Load) traffic.Plan {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 0))
	products := dropsIn(load)
	wanted, single := map[string]int64{}, map[string]int64{}
	plan := traffic.Plan{Clients: clients}
	n := int(load.Duration.Seconds() * float64(load.Rate))
	burst, hot := 0, 0 // hot is the product of the burst: the first or the second on sale
	for i, m := range load.Slots(random, n) {
		if m.Burst == 0 {
			hot = 1 - hot // each product has a purchase of its own, also in a short load
		} else if m.Burst != burst {
			burst, hot = m.Burst, traffic.Uneven(random, 2)
		}
		want := drawCart(random, onSale(m.At, load), hot)
		intent := buyIntent(fmt.Sprintf("buy-%d-%06d", load.Seed, i), random.IntN(clients), want...)
		intent.GivesUp = random.IntN(traffic.GiveUpEvery) == 0
		if other := plan.SameKey(); other != nil {
			intent.Client, intent.SharedKey = (other.Client+1)%clients, other.Key
		}
		if !intent.GivesUp {
			for _, line := range want {
				wanted[line.SKU] += line.Quantity
			}
			if len(want) == 1 && want[0].Quantity == 1 {
				single[want[0].SKU]++
			}
		}
		plan.Add(random, load.Replicas, traffic.ScheduledRequest{At: m.At, Replica: m.Replica, Intent: intent})
	}
	var given []Stock
	for d := range products {
		given = append(given, priced(d, min(wanted[sku(d)]/2, single[sku(d)])))
	}
	plan.Given = given
	lists := listEvery(load)
	plan.AddBeside(load.Spread(random, "look", 2*n, 1, func(i int, key string) *traffic.Intent {
		if i%lists == 0 {
			return readIntent(key, random.IntN(clients), Read{})
		}
		return readIntent(key, random.IntN(clients), Read{SKU: sku(onSale(load.At(i, 2*n), load)[random.IntN(2)])})
	})...)
	plan.AddBeside(load.Spread(random, "offence", n, offenceEvery, func(k int, key string) *traffic.Intent {
		return offence(k, random.IntN(clients), key, traffic.DrawID(random))
	})...)
	return plan
}

// listEvery returns the number of reads of which one is of all products. The longer the list, the rarer it
// is read: otherwise the answers of a long load would not fit into memory.
func listEvery(load traffic.Load) int { return dropsIn(load) / 2 }

// readIntent reads a product, an order, or all products.
func readIntent(key string, client int, of Read) *traffic.Intent {
	i := &traffic.Intent{Client: client, Key: key, Action: ReadProducts, Method: http.MethodGet, Path: "/v1/products", Of: of, Reads: true}
	switch {
	case of.Order != uuid.Nil:
		i.Action, i.Path = ReadOrder, "/v1/orders/"+of.Order.String()
	case of.SKU != "":
		i.Action, i.Path = ReadProduct, "/v1/products/"+of.SKU
	}
	return i
}

// onSale returns the two products that are on sale at a moment.
func onSale(at time.Duration, load traffic.Load) [2]int {
	slots := dropsIn(load) - 1
	slot := min(int(at*time.Duration(slots)/load.Duration), slots-1)
	return [2]int{slot, slot + 1}
}

// drawCart draws mostly one unit of the first or the second product on sale, sometimes more units, and
// sometimes both products, which the service must lock in the same order everywhere.
func drawCart(random *rand.Rand, drops [2]int, one int) []Stock {
	switch kind := random.IntN(100); {
	case kind < 70 || (drops[0] < euros) != (drops[1] < euros): // an order is in one currency
		return []Stock{priced(drops[one], 1)}
	case kind < 85:
		return []Stock{priced(drops[one], 2+random.Int64N(2))}
	default:
		one = random.IntN(2)
		return []Stock{priced(drops[one], 1), priced(drops[1-one], 1)} // in either order
	}
}

func sku(drop int) string { return fmt.Sprintf("drop-%02d", drop) }

// priced returns a quantity of a product, at its price; no two products have the same price.
func priced(drop int, quantity int64) Stock {
	s := Stock{SKU: sku(drop), Quantity: quantity, Price: 1009 + 131*int64(drop), Currency: "EUR"}
	if drop >= euros {
		s.Currency = "USD"
	}
	if drop%5 == 4 {
		s.ClientMax = unreached
	}
	return s
}

// buyIntent returns a purchase.
func buyIntent(key string, client int, lines ...Stock) *traffic.Intent {
	return intend(key, client, Buy, "/v1/orders", lines, buyBody(lines))
}

// intend returns a purchase or a cancellation of some lines.
func intend(key string, client int, action traffic.Action, path string, lines []Stock, body []byte) *traffic.Intent {
	i := &traffic.Intent{Client: client, Key: key, Action: action, Method: http.MethodPost, Path: path, Body: body, Of: lines}
	for _, l := range lines {
		i.Contends = append(i.Contends, l.SKU)
	}
	return i
}

// cancelIntent returns a cancellation of an existing order.
func cancelIntent(key string, client int, bought traffic.Record) *traffic.Intent {
	lines := cart(bought.Intent)
	i := intend(key, client, Cancel, "/v1/orders/"+bought.Made.String()+"/cancel", lines, nil)
	i.Of, i.Ends = Return{bought.Made, lines}, true
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
		order.Lines = append(order.Lines, item{l.SKU, l.Quantity})
	}
	return traffic.Encode(order)
}
