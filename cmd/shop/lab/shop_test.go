// SPDX-License-Identifier: MIT

package lab

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
	"shop/transfer"
	"shop/wallet"
	"shop/wallet/mongotest"
)

// byHand is a Lab with a shop: the API on a schema and a database of its own, and two customers.
type byHand struct {
	*served
	db        *pgtest.Database
	orders    *inventory.Service
	customers []Customer // alice, bob
	api       *api.Server

	mu   sync.Mutex
	down []Outage
}

func serveShop(t *testing.T) *byHand {
	t.Helper()
	s := &byHand{db: pgtest.New(t, "inventory", "transfer", "cmd/shop/api")}
	mongo, _ := mongotest.Database(t, servertest.Env(t, "SHOP_MONGO_URL"))
	if err := wallet.Migrate(t.Context(), mongo); err != nil {
		t.Fatal(err)
	}
	var err error
	must := func(failed error) {
		t.Helper()
		if failed != nil {
			t.Fatal(failed)
		}
	}
	s.orders, err = inventory.New(inventory.Config{Pool: s.db.Pool, Strategy: "row", Encode: api.Encode})
	must(err)
	t.Cleanup(s.orders.Close)
	money, err := transfer.New(transfer.Config{Pool: s.db.Pool, Strategy: "row", Encode: api.EncodeTransfer})
	must(err)
	t.Cleanup(money.Close)
	wallets, err := wallet.New(wallet.Config{Database: mongo, Encode: api.EncodeWallet})
	must(err)
	t.Cleanup(wallets.Close)
	for _, name := range []string{"alice", "bob"} {
		c := Customer{Name: name, Account: uuid.New(), Wallet: uuid.New()}
		c.ID, _, err = api.AddClient(t.Context(), s.db.Pool, name, false)
		must(err)
		_, err = money.OpenAccount(t.Context(), transfer.Account{ID: c.Account, Owner: c.ID, Currency: "EUR", Opening: 10_000})
		must(err)
		_, err = wallets.OpenWallet(t.Context(), wallet.Wallet{ID: c.Wallet, Owner: c.ID, Currency: "EUR", Opening: 5_000})
		must(err)
		s.customers = append(s.customers, c)
	}
	_, err = s.orders.AddProduct(t.Context(), inventory.Product{SKU: "coffee", Name: "Coffee", Price: 890, Currency: "EUR", Stock: 100})
	must(err)
	s.served = serve(t, func(cfg *Config) {
		cfg.Shop = Shop{
			Pool:      s.db.Pool,
			Customers: func(ctx context.Context) ([]Customer, error) { return s.customers, s.db.Pool.Ping(ctx) },
			API:       func(client uuid.UUID) http.Handler { return s.api.As(client) },
			Products:  s.orders.Products, Account: money.Account, Wallet: wallets.Wallet, Down: s.outages,
			Strategies: map[string][]string{"orders": {"row", "atomic"}, "transfers": {"row"}, "wallets": {"lockid"}},
		}
		s.api, err = api.New(api.Config{
			Pool: s.db.Pool, Catalog: s.orders, Books: money, Log: cfg.Log, Metrics: prometheus.NewRegistry(),
			Orders:    func(strategy string) (api.Buyer, error) { return s.orders.With(cmp.Or(strategy, "row")) },
			Transfers: func(strategy string) (*transfer.Service, error) { return money.With(cmp.Or(strategy, "row")) },
			Wallets:   func(strategy string) (*wallet.Service, error) { return wallets.With(cmp.Or(strategy, "lockid")) },
			Ready:     func(context.Context) (api.Degraded, error) { return api.Degraded{}, nil },
			Audit:     func(context.Context) (map[string]map[string]int64, error) { return nil, nil },
			Lab:       []string{"row", "atomic"},
		})
		must(err)
	})
	return s
}

func (s *byHand) outages(context.Context) []Outage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

func (s *byHand) breaks(list ...Outage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = list
}

// ask sends a request of the page.
func (s *byHand) ask(customer, path, key, body string) (status int, replayed bool, answer string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "POST", s.url+"/lab/shop/"+customer+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {key}}
	res, answer := s.do(req)
	return res.StatusCode, res.Header.Get("Idempotency-Replayed") == "true", answer
}

// window is an open stream of the page.
type window struct {
	t     *testing.T
	lines *bufio.Scanner
}

func (s *byHand) window() *window {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second) // a state that never comes ends the test
	s.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", s.url+"/lab/shop/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil || res.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatal(res, err)
	}
	s.t.Cleanup(func() { res.Body.Close() })
	w := &window{s.t, bufio.NewScanner(res.Body)}
	w.lines.Buffer(nil, 1<<20)
	return w
}

// until reads states until one is as wanted. It returns false if the stream ends before.
func (w *window) until(wanted func(shopState) bool) bool {
	w.t.Helper()
	for w.lines.Scan() {
		data, ok := strings.CutPrefix(w.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var state shopState
		if err := json.Unmarshal([]byte(data), &state); err != nil {
			w.t.Fatal(err)
		}
		if wanted(state) {
			return true
		}
	}
	return false
}

const oneCoffee = `{"lines":[{"sku":"coffee","quantity":1}]}`

func TestShop_AWindowSeesWhatAllOthersDo(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	w := s.window()
	if !w.until(func(state shopState) bool {
		return len(state.Customers) == 2 && len(state.Orders) == 0 && state.Products[0].Stock == 100 && state.Customers[1].Wallet.Balance == 5_000
	}) {
		t.Fatal("the first state")
	}
	if status, _, body := s.ask("alice", "orders?strategy=atomic", "k1", oneCoffee); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	if !w.until(func(state shopState) bool {
		return len(state.Orders) == 1 && state.Orders[0].Customer == "alice" && state.Orders[0].Total == 890 && state.Products[0].Stock == 99
	}) {
		t.Fatal("the order of another window")
	}
	alice, bob := s.customers[0], s.customers[1]
	transfer := `{"from":"` + alice.Account.String() + `","to":"` + bob.Account.String() + `","amount":1000,"currency":"EUR"}`
	if status, _, body := s.ask("alice", "transfers", "k2", transfer); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	if status, _, body := s.ask("bob", "wallets/"+bob.Wallet.String()+"/payments", "k3", `{"to":"`+alice.Wallet.String()+`","amount":700}`); status != http.StatusCreated {
		t.Fatal(status, body)
	}
	reply, err := s.orders.Buy(t.Context(), inventory.Request{Client: uuid.New(), Key: "k4", Fingerprint: [32]byte{1}}, []inventory.Line{{SKU: "coffee", Quantity: 2}})
	if err != nil || reply.Status != http.StatusCreated { // as another replica does for another client
		t.Fatal(reply, err)
	}
	if !w.until(func(state shopState) bool {
		a, b := state.Customers[0], state.Customers[1]
		return len(state.Orders) == 2 && state.Orders[0].Customer == "" && state.Orders[0].Quantity == 2 &&
			a.Account.Balance == 9_000 && len(b.Account.Entries) == 1 && b.Account.Entries[0].Delta == 1_000 &&
			a.Wallet.Balance == 5_700 && len(b.Wallet.Entries) == 1 && b.Wallet.Entries[0].Delta == -700
	}) {
		t.Fatal("the transfer, the payment, and the order of another replica")
	}
	s.lab.Stop()
	if w.until(func(shopState) bool { return false }) {
		t.Error("the stream goes on after Stop")
	}
}

func TestShop_TheSameKeyTwiceIsOneOrderAndTheSameAnswer(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	status, replayed, first := s.ask("alice", "orders", "key", oneCoffee)
	if status != http.StatusCreated || replayed {
		t.Fatal(status, replayed, first)
	}
	if status, replayed, again := s.ask("alice", "orders", "key", oneCoffee); status != http.StatusCreated || !replayed || again != first {
		t.Errorf("%d %v %s, want %s", status, replayed, again, first)
	}
	if status, replayed, bobs := s.ask("bob", "orders", "key", oneCoffee); status != http.StatusCreated || replayed || bobs == first {
		t.Errorf("the same key of bob: %d %v %s", status, replayed, bobs)
	}
	var orders int
	if err := s.db.Pool.QueryRow(t.Context(), `SELECT count(*) FROM orders`).Scan(&orders); err != nil || orders != 2 {
		t.Errorf("%d orders, %v", orders, err)
	}
}

func TestShop_RefusalsSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	alice, bob := s.customers[0], s.customers[1]
	transfer := `{"from":"` + bob.Account.String() + `","to":"` + alice.Account.String() + `","amount":1,"currency":"EUR"}`
	for _, c := range []struct {
		customer, path, body string
		status               int
		want                 string
	}{
		{"mallory", "orders", oneCoffee, http.StatusNotFound, `no customer \"mallory\"`},
		{"alice", "orders", `{"lines":[{"sku":"tea","quantity":1}]}`, http.StatusNotFound, `There is no product`},
		{"alice", "orders", `{"lines":[{"sku":"coffee","quantity":0}]}`, http.StatusUnprocessableEntity, "invalid-request"},
		{"alice", "orders", `{"lines":[{"sku":"coffee","quantity":101}]}`, http.StatusConflict, "100 left"},
		{"alice", "orders?strategy=hope", oneCoffee, http.StatusBadRequest, "is not one of the allowed values"},
		{"alice", "orders", "{", http.StatusBadRequest, "malformed"},
		{"alice", "orders", oneCoffee + strings.Repeat(" ", 20<<10), http.StatusRequestEntityTooLarge, "too-large"},
		{"alice", "transfers", transfer, http.StatusForbidden, "Only its owner"},
		{"alice", "clients", oneCoffee, http.StatusNotFound, "no such route"},
	} {
		status, _, body := s.ask(c.customer, c.path, uuid.NewString(), c.body)
		if status != c.status || !strings.Contains(body, c.want) {
			t.Errorf("%s %s: %d %s, want %d %q", c.customer, c.path, status, body, c.status, c.want)
		}
	}
	s.wantOwnOrigin("/lab/shop/alice/v1/orders", oneCoffee)
	s.customers = nil
	if status, _, body := s.ask("alice", "orders", "k", oneCoffee); status != http.StatusNotFound || !strings.Contains(body, "shop seed") {
		t.Errorf("without customers: %d %s", status, body)
	}
}

func TestShop_AStoreThatIsDownIsNamedAndTheRestStays(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	w := s.window()
	w.until(func(state shopState) bool { return len(state.Customers) == 2 })
	s.breaks(Outage{"etcd", "does not reply"})
	if !w.until(func(state shopState) bool { return len(state.Down) == 1 && state.Down[0].Store == "etcd" }) {
		t.Error("etcd")
	}
	s.breaks()
	s.db.Pool.Close() // reads fail, as without PostgreSQL
	if !w.until(func(state shopState) bool {
		return len(state.Down) == 1 && state.Down[0].Store == "PostgreSQL" && len(state.Customers) == 2 && len(state.Products) == 1
	}) {
		t.Error("PostgreSQL")
	}
	if status, _, body := s.ask("alice", "orders", "k", oneCoffee); status != http.StatusServiceUnavailable || !strings.Contains(body, "PostgreSQL") || !strings.Contains(body, "same key") {
		t.Errorf("%d %s", status, body)
	}
}

func TestShop_WindowsAreBounded(t *testing.T) {
	t.Parallel()
	s := serveShop(t)
	for range windowsMax {
		s.lab.feed.windows <- struct{}{}
	}
	var answer struct{ Error string }
	if res := s.send("GET", "/lab/shop/events", "", &answer); res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(answer.Error, "close one") {
		t.Errorf("%s %q", res.Status, answer.Error)
	}
	<-s.lab.feed.windows
	s.window()
}
