// SPDX-License-Identifier: MIT

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/inventory"
	"shop/transfer"
	"shop/wallet"
)

// Shop is the replica that the page of the shop uses. Its customers are those that shop seed makes, so that the page,
// the command line and the API show the same money.
type Shop struct {
	Pool       *pgxpool.Pool
	Customers  func(context.Context) ([]Customer, error)
	API        func(client uuid.UUID) http.Handler // the API for one client, without an API key
	Products   func(context.Context) ([]inventory.Product, error)
	Account    func(ctx context.Context, client, id uuid.UUID) (transfer.Account, error)
	Wallet     func(ctx context.Context, client, id uuid.UUID) (wallet.Wallet, error)
	Down       func(context.Context) []Outage
	Strategies map[string][]string // flow → what a request may choose
}

// Customer is a client of the demo, with its account and its wallet.
type Customer struct {
	ID, Account, Wallet uuid.UUID
	Name                string
}

// Outage is a store that does not reply, and what that means, in words.
type Outage struct {
	Store string
	Means string
}

const (
	// The streams poll. A NOTIFY would need triggers on the tables that the lab measures, PostgreSQL commits
	// transactions that notify one at a time, and MongoDB would need a second way. All streams share one poll, which
	// sees what other replicas and the command line write too. Without a stream there is none.
	pollEvery  = 500 * time.Millisecond
	pollWait   = 2 * time.Second
	ordersMax  = 12
	windowsMax = 16
)

// seedFirst is what to do without the demo's customers.
const seedFirst = "there is no demo data: run bin/shop seed with SHOP_POSTGRES_URL and SHOP_MONGO_URL as this server has them"

func (l *Lab) shopPage(w http.ResponseWriter, _ *http.Request) {
	l.render(w, "shop.html", map[string]any{"Strategies": l.cfg.Shop.Strategies})
}

// send passes a request of the page to the API, as the customer of the path.
func (l *Lab) send(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pollWait)
	defer cancel()
	customers, err := l.cfg.Shop.Customers(ctx)
	if err != nil {
		l.cfg.Log.Warn("the lab could not find its customers", "error", err)
		fail(w, http.StatusServiceUnavailable, errors.New("PostgreSQL did not find the customer. Nothing was done; send it again with the same key"))
		return
	}
	if len(customers) == 0 {
		fail(w, http.StatusNotFound, errors.New(seedFirst))
		return
	}
	for _, c := range customers {
		if c.Name == r.PathValue("customer") {
			http.StripPrefix("/lab/shop/"+c.Name, l.cfg.Shop.API(c.ID)).ServeHTTP(w, r)
			return
		}
	}
	fail(w, http.StatusNotFound, fmt.Errorf("there is no customer %q on this page", r.PathValue("customer")))
}

// shopState is what the page shows.
type shopState struct {
	Customers []customerState
	Products  []inventory.Product
	Orders    []orderState // of all clients, the latest first
	Down      []Outage
}

type customerState struct {
	Name    string
	Account transfer.Account
	Wallet  *wallet.Wallet // nil: MongoDB does not reply
}

type orderState struct {
	ID        uuid.UUID
	Customer  string // "" for other clients
	Status    inventory.Status
	SKU       string
	Quantity  int64
	Total     int64
	Currency  string
	CreatedAt time.Time
}

// shopFeed is the last poll, which all streams share.
type shopFeed struct {
	mu      sync.Mutex
	at      time.Time
	state   shopState
	encoded []byte
	windows chan struct{} // one slot for each stream
}

// poll returns the present state. While a store does not reply, it has the last that was read there.
func (l *Lab) poll() []byte {
	f := &l.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.encoded != nil && time.Since(f.at) < pollEvery*9/10 {
		return f.encoded
	}
	ctx, cancel := context.WithTimeout(l.life, pollWait) // not of the stream that asks: all get the result
	defer cancel()
	f.state.Down = l.cfg.Shop.Down(ctx)
	if next, err := l.cfg.Shop.read(ctx); err == nil {
		next.Down = f.state.Down
		f.state = next
		if len(next.Customers) == 0 {
			f.state.Down = append(f.state.Down, Outage{"No customers", seedFirst})
		}
	} else if len(f.state.Down) == 0 {
		f.state.Down = []Outage{{"PostgreSQL", "did not reply in time, so what you see is old"}}
	}
	f.encoded, _ = json.Marshal(f.state) // cannot fail: numbers, texts and times
	f.at = time.Now()
	return f.encoded
}

// read reads the state.
func (s *Shop) read(ctx context.Context) (state shopState, err error) {
	customers, err := s.Customers(ctx)
	if err != nil {
		return state, err
	}
	names := map[uuid.UUID]string{}
	for _, c := range customers {
		names[c.ID] = c.Name
		account, err := s.Account(ctx, c.ID, c.Account)
		if err != nil {
			return state, err
		}
		state.Customers = append(state.Customers, customerState{Name: c.Name, Account: account})
	}
	if state.Products, err = s.Products(ctx); err != nil {
		return state, err
	}
	if state.Orders, err = s.orders(ctx, names); err != nil {
		return state, err
	}
	for n, c := range customers { // last: MongoDB may be slow, and then the rest is right
		if w, err := s.Wallet(ctx, c.ID, c.Wallet); err == nil {
			state.Customers[n].Wallet = &w
		}
	}
	return state, nil
}

// orders reads the latest lines of orders. The ids of orders are in the order of time, and the primary key has them.
func (s *Shop) orders(ctx context.Context, names map[uuid.UUID]string) ([]orderState, error) {
	rows, _ := s.Pool.Query(ctx, `
		SELECT o.id, o.client_id, o.status, l.sku, l.quantity, l.quantity * l.unit_price, o.currency, o.created_at
		FROM (SELECT * FROM orders ORDER BY id DESC LIMIT $1) o
		JOIN order_lines l ON l.order_id = o.id
		ORDER BY o.id DESC, l.sku
		LIMIT $1`, ordersMax)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (o orderState, err error) {
		var client uuid.UUID
		err = row.Scan(&o.ID, &client, &o.Status, &o.SKU, &o.Quantity, &o.Total, &o.Currency, &o.CreatedAt)
		o.Customer, o.CreatedAt = names[client], o.CreatedAt.UTC()
		return o, err
	})
}

// watch streams the state: at once, and whenever it has changed.
func (l *Lab) watch(w http.ResponseWriter, r *http.Request) {
	select {
	case l.feed.windows <- struct{}{}:
		defer func() { <-l.feed.windows }()
	default:
		fail(w, http.StatusServiceUnavailable, fmt.Errorf("this page is open in %d windows; close one", windowsMax))
		return
	}
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for sent := []byte(nil); ; {
		if state := l.poll(); !bytes.Equal(state, sent) {
			_ = control.SetWriteDeadline(time.Now().Add(streamLimit)) // the server's own is for short replies
			if _, err := fmt.Fprintf(w, "event: state\ndata: %s\n\n", state); err != nil {
				return
			}
			if err := control.Flush(); err != nil {
				return
			}
			sent = state
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-l.life.Done():
			return
		}
	}
}
