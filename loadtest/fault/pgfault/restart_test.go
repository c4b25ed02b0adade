// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/compose/local/stack/stacktest"
	"shop/loadtest/fault"
)

func TestRestart_PostgresComesBackWithItsDataEachTime(t *testing.T) {
	postgres := stacktest.Private(t, "postgres")[0]
	url := postgres.Env["SHOP_POSTGRES_URL"]
	exec := func(sql string) error {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), sql)
		return err
	}
	if err := exec("CREATE TABLE kept (id int)"); err != nil {
		t.Fatal(err)
	}
	w, err := NewProxy(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	open, err := pgx.Connect(t.Context(), w.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close(context.Background())
	events, err := fault.Restart{Server: postgres, Name: "postgres", Evidence: "pg_restarts", Times: 2}.Inject(t.Context(), time.Second)
	if err != nil || fault.Seen(events)["pg_restarts"] != 2 || events[1].At.Before(events[0].Until) {
		t.Errorf("%+v, %v", events, err)
	}
	if _, err := open.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a connection has survived the restart")
	}
	url = w.URL() // the proxy survives the restart
	if err := exec("INSERT INTO kept VALUES (1)"); err != nil {
		t.Error(err)
	}
}
