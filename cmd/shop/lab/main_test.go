package lab

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/locktest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	goleak.VerifyTestMain(m)
}

// served is a Lab behind an HTTP server, on a schema of its own.
type served struct {
	t   *testing.T
	url string
	lab *Lab
	cfg Config
}

func serve(t *testing.T, options ...func(*Config)) *served {
	t.Helper()
	cfg := Config{
		PostgresURL: pgtest.Schema(t), RedisURL: locktest.Env(t, "SHOP_REDIS_URL"), LockPrefix: rand.Text(),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, o := range options {
		o(&cfg)
	}
	dropSchemas(t, cfg.PostgresURL)
	l := New(cfg)
	server := httptest.NewServer(l)
	t.Cleanup(func() {
		l.Close()
		server.Close()
	})
	return &served{t, server.URL, l, cfg}
}

// dropSchemas drops the schemas of races when the test ends.
func dropSchemas(t *testing.T, databaseURL string) {
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		var schema string
		if err := conn.QueryRow(context.Background(), `SELECT current_schema()`).Scan(&schema); err != nil {
			t.Fatal(err)
		}
		for _, lane := range []string{"_race_1", "_race_2"} {
			if _, err := conn.Exec(context.Background(), "DROP SCHEMA IF EXISTS "+schema+lane+" CASCADE"); err != nil {
				t.Error(err)
			}
		}
	})
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

// race runs a race to its end. No safe strategy may oversell, and the verdict must be what the tables say.
func (s *served) race(settings Settings) (r Result) {
	s.t.Helper()
	s.send("GET", s.start(settings), "", &r)
	for n, l := range r.Lanes {
		s.t.Logf("%s, %s: %s %v", l.Strategy, r.Fault, l.Verdict.Text, l.Verdict.Broken)
		if v := l.Verdict; v.Oversold != max(0, s.oversold(n+1)) || l.Safe && !v.Holds {
			s.t.Errorf("%s: %+v; the tables say %d", l.Strategy, v, s.oversold(n+1))
		}
	}
	return r
}

// shows runs a race again, at most twice, until it shows what it should: on a machine that is too busy the time of a
// race may end before that.
func (s *served) shows(settings Settings, missing func(Result) string) (r Result) {
	s.t.Helper()
	why := "no race"
	for n := 0; n < 3 && why != ""; n++ {
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
