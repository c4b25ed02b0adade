// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/compose/local/stack/stacktest"
	"shop/loadtest/fault"
	"shop/locking/locktest"
)

// Goal: the fault loses what was committed while the standby was away if COMMITs do not wait for it, and nothing that
// was acknowledged if they do. Method: a client inserts numbers one after the other, and keeps those that the server
// acknowledged.
func TestStandby_AcknowledgedRowsAreLostOnlyIfCommitsDoNotWait(t *testing.T) {
	locktest.Slow(t, "starts a primary and a standby, and ends both")
	for name, c := range map[string]struct{ lost, async bool }{
		"standby gone":        {false, false},
		"primary lost":        {true, false},
		"primary lost, async": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := Standby{Away: time.Second, Lost: c.lost, Async: c.async}
			for _, s := range stacktest.Private(t, "postgres-standby") {
				f.Members, f.URL = append(f.Members, fault.Member{Addr: s.Addr, Server: s}), s.Env["SHOP_POSTGRES_URL"]
			}
			w := &writer{t: t, url: f.URL}
			w.do("CREATE TABLE rows (n int)")
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); w.insert(ctx) }()
			events, err := f.Inject(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			w.do("INSERT INTO rows VALUES (0)") // the server that takes writes now
			stop()
			<-done
			var lost int
			w.query("SELECT count(*) FROM unnest($1::int[]) AS n WHERE n NOT IN (SELECT n FROM rows)", &lost, w.acknowledged)
			seen := fault.Seen(events)
			t.Logf("%d rows acknowledged, %d of them lost, %v", len(w.acknowledged), lost, seen)
			if (lost > 0) != c.async || (seen["commits_waited"] > 0) == c.async || (seen["promotions"] == 1) != c.lost || len(w.acknowledged) == 0 {
				t.Errorf("%d rows acknowledged, %d of them lost, %v", len(w.acknowledged), lost, seen)
			}
		})
	}
}

// writer inserts the numbers from 1, each on a connection of its own.
type writer struct {
	t            testing.TB
	url          string
	acknowledged []int
}

func (w *writer) insert(ctx context.Context) {
	for n := 1; ctx.Err() == nil; n++ {
		patient, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		conn, err := pgx.Connect(patient, w.url)
		if err == nil {
			if _, err = conn.Exec(patient, "INSERT INTO rows VALUES ($1)", n); err == nil {
				w.acknowledged = append(w.acknowledged, n)
			}
			_ = conn.Close(patient)
		}
		cancel()
	}
}

func (w *writer) do(sql string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(w.t.Context(), sql); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) query(sql string, into any, args ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(w.t.Context(), sql, args...).Scan(into); err != nil {
		w.t.Fatal(err)
	}
}
