// SPDX-License-Identifier: MIT

package stack_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking/locktest"
)

// Goal: a write that was acknowledged survives the loss of the primary, and the one address leads to the promoted
// standby. Method: a write while the standby is away must not be acknowledged.
func TestStandby_HasWhatWasAcknowledgedAndTakesOver(t *testing.T) {
	locktest.Slow(t, "starts a primary and a standby, and ends both")
	t.Parallel()
	s := open(t, "postgres-standby")
	primary, standby := server(t, s, "postgres-standby-1"), server(t, s, "postgres-standby-2")
	url := primary.Env["SHOP_POSTGRES_URL"]
	do := func(ctx context.Context, sql string) error {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		_, err = conn.Exec(ctx, sql)
		return err
	}
	must(t, "the first write after Open", do(t.Context(), "CREATE TABLE kept AS SELECT 'first' AS v"))

	must(t, "Kill the standby", standby.Kill(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := do(ctx, "INSERT INTO kept VALUES ('second')"); err == nil {
		t.Fatal("a write was acknowledged while the standby was away")
	}
	must(t, "Start the standby", standby.Start(t.Context()))
	must(t, "a write after its return", do(t.Context(), "INSERT INTO kept VALUES ('third')"))

	must(t, "Kill the primary", primary.Kill(t.Context()))
	if err := do(t.Context(), "INSERT INTO kept VALUES ('fourth')"); err == nil {
		t.Fatal("a standby took a write")
	}
	direct, err := pgx.Connect(t.Context(), "postgres://"+standby.Addr+"/shop?sslmode=disable&user=shop&password="+passwordOf(t, url))
	must(t, "connect to the standby", err)
	defer direct.Close(context.Background())
	_, err = direct.Exec(t.Context(), "SELECT pg_promote()")
	must(t, "promote", err)
	must(t, "a write to the promoted standby, through the same address", do(t.Context(), "INSERT INTO kept VALUES ('fifth')"))
	var kept string
	must(t, "read", direct.QueryRow(t.Context(), "SELECT string_agg(v, ' ') FROM kept WHERE v <> 'second'").Scan(&kept))
	if kept != "first third fifth" {
		t.Errorf("kept %q", kept)
	}
}

func passwordOf(t *testing.T, url string) string {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	must(t, "parse the address", err)
	return config.Password
}
