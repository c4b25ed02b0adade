// SPDX-License-Identifier: MIT

package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9/logging"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.uber.org/goleak"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/servertest"
	"shop/wallet"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	// go-redis sleeps for a second after its pool was closed, if a server was away.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// served is a Lab behind an HTTP server, on a schema of its own.
type served struct {
	t      *testing.T
	url    string
	lab    *Lab
	cfg    Config
	conn   *pgx.Conn
	mongo  *mongo.Client
	schema string // of the shop
}

func serve(t *testing.T, options ...func(*Config)) *served {
	t.Helper()
	cfg := Config{
		PostgresURL: pgtest.Schema(t), RedisURL: servertest.Env(t, "SHOP_REDIS_URL"), LockPrefix: rand.Text(),
		EtcdEndpoints: strings.Split(servertest.Env(t, "SHOP_ETCD_ENDPOINTS"), ","), MongoURL: servertest.Env(t, "SHOP_MONGO_URL"),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, o := range options {
		o(&cfg)
	}
	s := &served{t: t, lab: New(cfg), cfg: cfg}
	s.connect()
	server := httptest.NewServer(s.lab)
	t.Cleanup(func() {
		s.lab.Close()
		server.Close()
	})
	s.url = server.URL
	return s
}

// connect connects to the stores. When the test ends it drops what races have left there.
func (s *served) connect() {
	s.t.Helper()
	o, err := wallet.ClientOptions(servertest.Env(s.t, "SHOP_MONGO_URL"))
	if err == nil {
		s.mongo, err = mongo.Connect(o)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	if s.conn, err = pgx.Connect(s.t.Context(), s.cfg.PostgresURL); err != nil {
		s.t.Fatal(err)
	}
	if err := s.conn.QueryRow(s.t.Context(), `SELECT current_schema()`).Scan(&s.schema); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		for lane := 1; lane <= 2; lane++ {
			_, err := s.conn.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+s.table(lane, "")+" CASCADE")
			if db := s.database(lane); len(db.Name()) <= nameMax { // with a longer name no race began
				err = errors.Join(err, db.Drop(context.Background()))
			}
			if err != nil {
				s.t.Error(err)
			}
		}
		if err := errors.Join(s.conn.Close(context.Background()), s.mongo.Disconnect(context.Background())); err != nil {
			s.t.Error(err)
		}
	})
}

// table returns the name of a table of a lane, or of its schema.
func (s *served) table(lane int, name string) string {
	id := pgx.Identifier{fmt.Sprintf("%s_race_%d", s.schema, lane), name}
	if name == "" {
		id = id[:1]
	}
	return id.Sanitize()
}

// database returns the database of a lane of wallets.
func (s *served) database(lane int) *mongo.Database {
	u, err := url.Parse(s.cfg.MongoURL)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.mongo.Database(fmt.Sprintf("%s_%s_race_%d", strings.TrimPrefix(u.Path, "/"), s.schema, lane))
}

// send sends a request on a connection of its own, and decodes the answer.
func (s *served) send(method, path, body string, into any) *http.Response {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			s.t.Fatalf("%s %s: %s: %s", method, path, res.Status, answer)
		}
	}
	return res
}

// start starts a race, and returns its path.
func (s *served) start(settings Settings) string {
	s.t.Helper()
	body, err := json.Marshal(settings)
	if err != nil {
		s.t.Fatal(err)
	}
	var answer struct{ ID, Error string }
	if res := s.send("POST", "/lab/races", string(body), &answer); res.StatusCode != http.StatusCreated {
		s.t.Fatalf("%s %s", res.Status, answer.Error)
	}
	return "/lab/races/" + answer.ID
}

// race runs a race to its end. A safe strategy must hold, and the figures must be what the stores say.
func (s *served) race(settings Settings) (r Result) {
	s.t.Helper()
	s.send("GET", s.start(settings), "", &r)
	for n, l := range r.Lanes {
		s.t.Logf("%s, %s: %s %v", l.Strategy, r.Fault, l.Verdict.Text, l.Verdict.Broken)
		f := l.Verdict.Figures
		said := map[string]int64{"inventory": f["sold"] - f["opening"], "transfer": f["total"] - f["opening"], "wallet": f["missing"]}[r.Flow]
		if wrong := s.recount(r.Flow, n+1); said != wrong || wrong != 0 && l.Verdict.Holds && r.Flow != "inventory" || l.Safe && !l.Verdict.Holds {
			s.t.Errorf("%s: %+v; the stores say %d", l.Strategy, l.Verdict, wrong)
		}
	}
	return r
}

// recount counts in the stores of a lane what is too much: units sold, cents in accounts, or cents that a wallet lacks.
func (s *served) recount(flow string, lane int) (n int64) {
	s.t.Helper()
	var err error
	switch flow {
	case "inventory":
		err = s.conn.QueryRow(s.t.Context(), `
			SELECT (SELECT count(*) FROM `+s.table(lane, "orders")+`) - (SELECT sum(quantity) FROM `+s.table(lane, "stock_movements")+` WHERE kind = 'opening')`).Scan(&n)
	case "transfer":
		err = s.conn.QueryRow(s.t.Context(), `SELECT sum(balance - opening)::bigint FROM `+s.table(lane, "accounts")).Scan(&n)
	case "wallet":
		var w struct{ Balance int64 }
		var entries []struct{ Delta int64 }
		err = s.database(lane).Collection("wallets").FindOne(s.t.Context(), bson.D{}).Decode(&w)
		cursor, found := s.database(lane).Collection("wallet_entries").Find(s.t.Context(), bson.D{})
		if err = errors.Join(err, found); err == nil {
			err = cursor.All(s.t.Context(), &entries)
		}
		for _, e := range entries {
			n += e.Delta
		}
		n -= w.Balance
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// raceTries bounds how often a test runs a race: on a busy machine few of its requests meet, and its time may end early.
const raceTries = 6

// shows runs a race until it shows what it should, raceTries times at most.
func (s *served) shows(settings Settings, missing func(Result) string) (r Result) {
	s.t.Helper()
	why := "no race"
	for n := 0; n < raceTries && why != ""; n++ {
		r = s.race(settings)
		if why = missing(r); why != "" {
			s.t.Log(why)
		}
	}
	if why != "" {
		s.t.Error(why)
	}
	return r
}

// stream reads server-sent events to the end.
func (s *served) stream(path, lastID string) (kinds []string, last string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Last-Event-ID", lastID)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil || res.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatal(res, err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if kind, ok := bytes.CutPrefix(lines.Bytes(), []byte("event: ")); ok {
			kinds = append(kinds, string(kind))
		}
		if data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); ok {
			last = string(data)
		}
	}
	if err := lines.Err(); err != nil {
		s.t.Fatal(err)
	}
	return kinds, last
}
