// SPDX-License-Identifier: MIT

package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"shop/cmd/shop/api"
	"shop/inventory"
)

func TestBuy_IsReplayedByteForByte(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.buy("k1", "coffee", "2").want(t, 201, "")
	if o := first.order(t); o.Total != 1780 || o.Currency != "EUR" || o.Status != api.OrderConfirmed || len(o.Lines) != 1 {
		t.Errorf("order: %+v", o)
	}
	if first.header.Get("Idempotency-Replayed") != "" {
		t.Error("the first answer says that it is a replay")
	}
	for name, again := range map[string]answer{
		"same":        s.buy("k1", "coffee", "2"),
		"quoted key":  s.buy(`"k1"`, "coffee", "2"),
		"white space": s.do("POST", "/v1/orders", "{ \"lines\" : [\n{\"quantity\":2,\"sku\":\"coffee\"}]}", "Idempotency-Key: k1"),
		"charset":     s.buy("k1", "coffee", "2", "Content-Type: application/json; charset=UTF-8"),
	} {
		if again.status != 201 || !bytes.Equal(again.body, first.body) || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: %d %s replayed %q; want %s", name, again.status, again.body, again.header.Get("Idempotency-Replayed"), first.body)
		}
		if got := again.header.Get("Content-Type"); got != first.header.Get("Content-Type") {
			t.Errorf("%s: replayed as %s", name, got)
		}
	}
	s.wantStock("coffee", 98)
}

func TestBuy_TheOrderOfLinesDoesNotChangeTheIntent(t *testing.T) {
	t.Parallel()
	s := open(t)
	first := s.do("POST", "/v1/orders", `{"lines":[{"sku":"tea","quantity":1},{"sku":"coffee","quantity":3}]}`, "Idempotency-Key: k").want(t, 201, "")
	again := s.do("POST", "/v1/orders", `{"lines":[{"sku":"coffee","quantity":3},{"sku":"tea","quantity":1}]}`, "Idempotency-Key: k").want(t, 201, "")
	if !bytes.Equal(first.body, again.body) {
		t.Errorf("%s\n%s", first.body, again.body)
	}
}

func TestBuy_AKeyIsOneIntentOfOneClient(t *testing.T) {
	t.Parallel()
	s := open(t)
	mine := s.buy("k", "coffee", "1").want(t, 201, "")
	s.buy("k", "coffee", "2").want(t, 422, api.TypeIdempotencyKeyReused)
	s.buy("k", "tea", "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.do("POST", "/v1/orders/"+mine.order(t).ID.String()+"/cancel", "", "Idempotency-Key: k").want(t, 422, api.TypeIdempotencyKeyReused)
	his := s.buy("k", "coffee", "1", s.as("bob")).want(t, 201, "")
	if his.order(t).ID == mine.order(t).ID || his.header.Get("Idempotency-Replayed") != "" {
		t.Error("bob was given alice's answer")
	}
	s.wantStock("coffee", 98)
}

func TestBuy_SoldOutIsStoredToo(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.buy("k1", "last-one", "1").want(t, 201, "")
	first := s.buy("k2", "last-one", "1").want(t, 409, api.TypeOutOfStock)
	if p := first.problem; p.Sku != "last-one" || p.Left == nil || *p.Left != 0 {
		t.Errorf("problem: %s", first.body)
	}
	if _, err := s.pool.Exec(t.Context(), `UPDATE products SET stock = 5 WHERE sku = 'last-one'`); err != nil {
		t.Fatal(err)
	}
	again := s.buy("k2", "last-one", "1").want(t, 409, api.TypeOutOfStock)
	if !bytes.Equal(first.body, again.body) || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	s.buy("k3", "last-one", "1").want(t, 201, "")
}

func TestBuy_ThePurchaseLimitOfAClientIsStoredToo(t *testing.T) {
	t.Parallel()
	s := open(t)
	ticket := inventory.Product{SKU: "ticket", Name: "Ticket", Price: 4900, Currency: "EUR", Stock: 50, ClientMax: new(int64(4))}
	if _, err := s.service.AddProduct(t.Context(), ticket); err != nil {
		t.Fatal(err)
	}
	if shown := s.do("GET", "/v1/products/ticket", ""); !bytes.Contains(shown.body, []byte(`"limit_per_client":4`)) {
		t.Errorf("%s: it does not show its limit", shown.body)
	}
	bought := s.buy("k1", "ticket", "3").want(t, 201, "")
	first := s.buy("k2", "ticket", "2").want(t, 409, api.TypePurchaseLimit)
	if p := first.problem; p.Sku != "ticket" || p.Bought == nil || *p.Bought != 3 || p.LimitPerClient == nil || *p.LimitPerClient != 4 || !strings.Contains(p.Detail, "4 at most") {
		t.Errorf("problem: %s", first.body)
	}
	s.buy("k2", "ticket", "4", s.as("bob")).want(t, 201, "")
	s.do("POST", "/v1/orders/"+bought.order(t).ID.String()+"/cancel", "", "Idempotency-Key: c").want(t, 201, "")
	again := s.buy("k2", "ticket", "2").want(t, 409, api.TypePurchaseLimit)
	if !bytes.Equal(first.body, again.body) || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	s.buy("k3", "ticket", "4").want(t, 201, "")
	s.wantStock("ticket", 50-4-4)
}

// A buyer that says which price it has seen pays that price, or nothing. The price is a part of the intent.
func TestBuy_AtThePriceThatTheBuyerHasSeen(t *testing.T) {
	t.Parallel()
	s := open(t)
	buy := func(key, price string) answer {
		return s.do("POST", "/v1/orders", orderOf(`{"sku":"coffee","quantity":1,"unit_price":`+price+`}`), "Idempotency-Key: "+key)
	}
	bought := buy("k1", "890").want(t, 201, "")
	buy("k1", "891").want(t, 422, api.TypeIdempotencyKeyReused)
	s.buy("k1", "coffee", "1").want(t, 422, api.TypeIdempotencyKeyReused)
	if _, err := s.pool.Exec(t.Context(), `UPDATE products SET price = 990, version = version + 1 WHERE sku = 'coffee'`); err != nil {
		t.Fatal(err)
	}
	refused := buy("k2", "890").want(t, 409, api.TypePriceChanged)
	if p := refused.problem; p.Sku != "coffee" || p.UnitPrice == nil || *p.UnitPrice != 990 || !strings.Contains(p.Detail, "890 seen") {
		t.Errorf("problem: %s", refused.body)
	}
	if again := buy("k1", "890").want(t, 201, ""); !bytes.Equal(again.body, bought.body) {
		t.Errorf("%s, want the order at the old price", again.body)
	}
	if o := buy("k3", "990").want(t, 201, "").order(t); o.Total != 990 {
		t.Errorf("order: %+v", o)
	}
	if o := s.buy("k4", "coffee", "1").want(t, 201, "").order(t); o.Total != 990 {
		t.Errorf("order: %+v", o)
	}
	if _, err := s.pool.Exec(t.Context(), `UPDATE products SET price = 890 WHERE sku = 'coffee'`); err != nil {
		t.Fatal(err)
	}
	again := buy("k2", "890").want(t, 409, api.TypePriceChanged)
	if !bytes.Equal(again.body, refused.body) || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", refused.body, again.body)
	}
	s.wantStock("coffee", 97)
}

// A cancellation for which the stock has no room is refused: nothing happened.
func TestCancel_OfMoreThanTheStockCanCountIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.buy("k1", "coffee", "2").want(t, 201, "").order(t).ID.String()
	stock := func(change string) {
		t.Helper()
		if _, err := s.pool.Exec(t.Context(), `
			WITH restocked AS (UPDATE products SET stock = stock + `+change+` WHERE sku = 'coffee')
			INSERT INTO stock_movements (sku, kind, quantity) VALUES ('coffee', 'restock', `+change+`)`); err != nil {
			t.Fatal(err)
		}
	}
	stock("9223372036854775708") // 98 are left: one below the greatest number
	refused := s.do("POST", "/v1/orders/"+id+"/cancel", "", "Idempotency-Key: c1").want(t, 409, api.TypeStockLimit)
	s.buy("k2", "coffee", "1").want(t, 201, "")
	if again := s.do("POST", "/v1/orders/"+id+"/cancel", "", "Idempotency-Key: c1").want(t, 409, api.TypeStockLimit); !bytes.Equal(again.body, refused.body) {
		t.Errorf("%s\n%s", refused.body, again.body)
	}
	s.do("POST", "/v1/orders/"+id+"/cancel", "", "Idempotency-Key: c2").want(t, 201, "")
	s.wantStock("coffee", 9223372036854775807)
}

func TestBuy_AllOrNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	a := s.do("POST", "/v1/orders", `{"lines":[{"sku":"coffee","quantity":1},{"sku":"last-one","quantity":2}]}`, "Idempotency-Key: k")
	a.want(t, 409, api.TypeOutOfStock)
	s.wantStock("coffee", 100)
	s.wantStock("last-one", 1)
}

func TestBuy_UnknownSKUIsNotStored(t *testing.T) {
	t.Parallel()
	s := open(t)
	if a := s.buy("k", "nothing", "1").want(t, 404, api.TypeNotFound); a.problem.Sku != "nothing" {
		t.Errorf("problem: %s", a.body)
	}
	s.buy("k", "coffee", "1").want(t, 201, "") // so that the key is still free
}

func TestCancel_GivesBackExactlyOnce(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.buy("buy", "coffee", "7").want(t, 201, "").order(t).ID.String()
	cancel := func(key string) answer {
		return s.do("POST", "/v1/orders/"+id+"/cancel", "", "Idempotency-Key: "+key)
	}
	first := cancel("c1").want(t, 201, "")
	if o := first.order(t); o.Status != api.OrderCancelled || o.CancelledAt == nil {
		t.Errorf("order: %s", first.body)
	}
	if again := cancel(`"c1"`).want(t, 201, ""); !bytes.Equal(first.body, again.body) || again.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s\n%s", first.body, again.body)
	}
	refused := cancel("c2").want(t, 409, api.TypeAlreadyCancelled)
	if again := cancel("c2").want(t, 409, api.TypeAlreadyCancelled); !bytes.Equal(refused.body, again.body) {
		t.Errorf("%s\n%s", refused.body, again.body)
	}
	s.wantStock("coffee", 100)
	// The purchase's answer does not change.
	if o := s.buy("buy", "coffee", "7").want(t, 201, "").order(t); o.Status != api.OrderConfirmed {
		t.Errorf("replay after the cancel: %+v", o)
	}
}

func TestOrders_AreSeenByTheirClientOnly(t *testing.T) {
	t.Parallel()
	s := open(t)
	bought := s.buy("k", "coffee", "1").want(t, 201, "")
	path := "/v1/orders/" + bought.order(t).ID.String()
	if got := s.do("GET", path, "").want(t, 200, ""); !bytes.Equal(got.body, bought.body) {
		t.Errorf("%s\n%s", got.body, bought.body)
	}
	for _, other := range []string{"bob", "admin"} {
		s.do("GET", path, "", s.as(other)).want(t, 404, api.TypeNotFound)
		s.do("POST", path+"/cancel", "", "Idempotency-Key: k", s.as(other)).want(t, 404, api.TypeNotFound)
	}
	s.wantStock("coffee", 99)
	s.do("GET", "/v1/orders/00000000-0000-0000-0000-000000000000", "").want(t, 404, api.TypeNotFound)
}

// A UUID has many spellings; the server must map them to the same order or refuse them.
func TestOrders_AnotherSpellingOfTheIDIsTheSameOrder(t *testing.T) {
	t.Parallel()
	s := open(t)
	id := s.buy("k", "coffee", "1").want(t, 201, "").order(t).ID.String()
	s.do("GET", "/v1/orders/"+strings.ToUpper(id), "").want(t, 200, "")
	first := s.do("POST", "/v1/orders/"+strings.ToUpper(id)+"/cancel", "", "Idempotency-Key: c").want(t, 201, "")
	again := s.do("POST", "/v1/orders/"+id+"/cancel", "", "Idempotency-Key: c").want(t, 201, "")
	if !bytes.Equal(first.body, again.body) {
		t.Errorf("%s\n%s", first.body, again.body)
	}
}

func TestProducts_CanBeRead(t *testing.T) {
	t.Parallel()
	s := open(t)
	var list api.ProductList
	if err := json.Unmarshal(s.do("GET", "/v1/products", "").want(t, 200, "").body, &list); err != nil || len(list.Products) != 4 {
		t.Errorf("%+v, %v", list, err)
	}
	s.buy("k", "tea", "1")
	s.wantStock("tea", 99)
	if a := s.do("GET", "/v1/products/nothing", "").want(t, 404, api.TypeNotFound); a.problem.Sku != "nothing" {
		t.Errorf("problem: %s", a.body)
	}
}

// wantStock checks the stock through the API and in the movements.
func (s *shop) wantStock(sku string, want int64) {
	s.t.Helper()
	var p api.Product
	if err := json.Unmarshal(s.do("GET", "/v1/products/"+sku, "").want(s.t, 200, "").body, &p); err != nil {
		s.t.Fatal(err)
	}
	var booked int64
	err := s.pool.QueryRow(s.t.Context(), `SELECT sum(quantity)::bigint FROM stock_movements WHERE sku = $1`, sku).Scan(&booked)
	if err != nil || p.Stock != want || booked != want {
		s.t.Errorf("%s: %d in stock, %d booked, want %d (%v)", sku, p.Stock, booked, want, err)
	}
}

// Orders and transfers share one table of keys: a key that a client uses for both by
// mistake has one effect. Wallets store their keys in another database.
func TestKey_IsOneForOrdersAndTransfers(t *testing.T) {
	t.Parallel()
	s := openWallets(t)
	from, to := s.account("alice", 100), s.account("bob", 0)
	id := s.wallet("alice", 100)
	s.buy("k", "coffee", "1").want(t, 201, "")
	s.move("k", moveOf(from, to, "10")).want(t, 422, api.TypeIdempotencyKeyReused)
	s.debit("k", id, "10").want(t, 201, "")
	s.wantMoney("alice", from, 100, 0)

	first := s.move("k2", moveOf(from, to, "10")).want(t, 201, "")
	s.buy("k2", "coffee", "1").want(t, 422, api.TypeIdempotencyKeyReused)
	s.do("POST", "/v1/orders/"+uuid.NewString()+"/cancel", "", "Idempotency-Key: k2").want(t, 422, api.TypeIdempotencyKeyReused)
	if again := s.move("k2", moveOf(from, to, "10")).want(t, 201, ""); !bytes.Equal(again.body, first.body) {
		t.Errorf("%s, want %s", again.body, first.body)
	}
	s.wantMoney("alice", from, 90, 0)
	if orders, keys := s.count("orders"), s.count("idempotency_keys"); orders != 1 || keys != 2 {
		t.Errorf("%d orders, %d keys, want 1 and 2", orders, keys)
	}
}

// Even if both are sent at once, only one takes effect.
func TestKey_OfAnOrderAndATransferAtOnceHasOneEffect(t *testing.T) {
	t.Parallel()
	s := open(t)
	from, to := s.account("alice", 100), s.account("bob", 0)
	for n := range 10 {
		key := fmt.Sprint("k", n)
		var order, move answer
		var both sync.WaitGroup
		both.Go(func() { order = s.buy(key, "coffee", "1") })
		both.Go(func() { move = s.move(key, moveOf(from, to, "1")) })
		both.Wait()
		if lost := order.status + move.status; lost != 201+422 {
			t.Errorf("%s: an order answered %d, a transfer %d, want 201 and 422", key, order.status, move.status)
		}
	}
	if orders, transfers, keys := s.count("orders"), s.count("transfers"), s.count("idempotency_keys"); orders+transfers != 10 || keys != 10 {
		t.Errorf("%d orders and %d transfers under %d keys, want 10 under 10", orders, transfers, keys)
	}
}
