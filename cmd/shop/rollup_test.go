// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking/locktest"
)

// lastDue is noon of the last day that is due.
const lastDue = `(((now() - interval '10 minutes') AT TIME ZONE 'UTC')::date - interval '12 hours') AT TIME ZONE 'UTC'`

// gate is an advisory lock. While it is held, each piece but the first takes a second.
const gate = `hashtext(current_schema())`

// gatedSales makes 49,000 sales of that day, of 350 products, which are ten pieces.
var gatedSales = []string{
	`INSERT INTO products (sku, name, price, currency, stock)
	 SELECT 'x' || lpad(i::text, 3, '0'), 'x', 100, 'EUR', 1000 FROM generate_series(1, 350) AS i`,
	`WITH sold AS (
	     SELECT gen_random_uuid() AS id, 'x' || lpad((i % 350 + 1)::text, 3, '0') AS sku, i % 350 + 1 AS units, ` + lastDue + ` AS at
	     FROM generate_series(1, 49000) AS i
	 ), ordered AS (
	     INSERT INTO orders (id, client_id, idempotency_key, status, total, currency, created_at)
	     SELECT id, id, 'k', 'confirmed', units * 100, 'EUR', at FROM sold
	 ), lines AS (
	     INSERT INTO order_lines (order_id, sku, quantity, unit_price) SELECT id, sku, units, 100 FROM sold
	 )
	 INSERT INTO stock_movements (sku, kind, quantity, order_id, created_at) SELECT sku, 'sale', -units, id, at FROM sold`,
	`UPDATE stock_movements SET created_at = ` + lastDue,
	`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	     IF OLD.upto_id > 0 AND NOT pg_try_advisory_xact_lock_shared(` + gate + `) THEN PERFORM pg_sleep(1); END IF;
	     RETURN NEW;
	 END $$`,
	`CREATE TRIGGER wait BEFORE UPDATE ON roll_ups FOR EACH ROW EXECUTE FUNCTION wait()`,
}

const (
	rollUpTTL = 2 * time.Second
	skipped   = "another server adds up the sales"
	rolledUp  = "the sales of a day are added up"
)

func batchArgs(t *testing.T, url string) []string {
	return []string{"batch", "--postgres-url", url, "--lock-prefix", t.Name(), "--mongo-url=", "--roll-up-lock-ttl=" + rollUpTTL.String()}
}

// batchProcess is shop batch in a process of its own.
type batchProcess struct {
	*exec.Cmd
	log *lines
}

func startBatch(t *testing.T, url string) batchProcess {
	t.Helper()
	p := batchProcess{exec.CommandContext(t.Context(), os.Args[0], batchArgs(t, url)...), &lines{}}
	p.Env, p.Stderr = append(os.Environ(), asShop+"=1"), p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// runBatch runs shop batch to its end, and returns its log.
func runBatch(t *testing.T, url string) *lines {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out := &lines{}
	if err := runWith(ctx, batchArgs(t, url), out, out); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// closeGate closes the gate until open is called.
func closeGate(t *testing.T, url string) (open func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	open = func() { _ = conn.Close(context.Background()) }
	t.Cleanup(open)
	if _, err := conn.Exec(t.Context(), `SELECT pg_advisory_lock(`+gate+`)`); err != nil {
		t.Fatal(err)
	}
	return open
}

// Three servers begin the batch at once. Two skip the roll-up. The third keeps its lock for longer than the TTL,
// and is killed half way. The next batch that begins after the TTL finishes the roll-up, and no product is
// counted twice.
func TestBatch_RollsUpOnOneServerAndOutlivesItsDeath(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	for _, statement := range gatedSales {
		execute(t, url, statement)
	}
	open := closeGate(t, url)
	servers := make([]batchProcess, 3)
	ended := make(chan int, len(servers))
	for i := range servers {
		servers[i] = startBatch(t, url)
		go func() { _ = servers[i].Wait(); ended <- i }()
	}
	for range 2 {
		one := servers[<-ended]
		if code := one.ProcessState.ExitCode(); code != 0 || one.log.find(skipped) == nil {
			t.Errorf("exit status %d: want it to skip the roll-up\n%s", code, one.log)
		}
	}
	const half = `SELECT count(*) FROM roll_ups WHERE upto_id > 0 AND done_at IS NULL`
	locktest.Eventually(t, "the roll-up is half way", func() bool { return query(t, url, half) == 1 })

	for begun := time.Now(); time.Since(begun) < rollUpTTL*3/2; { // renewed, or a batch would take the lock
		if log := runBatch(t, url); log.find(skipped) == nil {
			t.Fatalf("%v after the lock was taken, want it to be held\n%s", time.Since(begun), log)
		}
	}
	for _, s := range servers {
		_ = s.Process.Signal(syscall.SIGKILL)
	}
	killed := servers[<-ended]
	death := time.Now()
	if status := killed.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Fatalf("the roll-up ended before it was killed: %v", killed.ProcessState)
	}
	if query(t, url, half) != 1 {
		t.Fatal("the roll-up was not half way")
	}
	if n := query(t, url, `SELECT count(*) FROM locks WHERE expires > clock_timestamp() + $1::interval`, rollUpTTL); n != 0 {
		t.Error("the lock of the dead server lasts for longer than the TTL")
	}
	open()

	locktest.Eventually(t, "another server finishes the roll-up", func() bool { return runBatch(t, url).find(rolledUp) != nil })
	const margin = 5 * time.Second // for batches that skip, and for the rest of the work
	if took := time.Since(death); took > rollUpTTL+margin {
		t.Errorf("the roll-up was done %v after the death of its server, with a TTL of %v", took, rollUpTTL)
	}
	if n := query(t, url, `SELECT count(*) FROM roll_ups WHERE done_at IS NOT NULL`); n != 1 {
		t.Errorf("%d days are done, want one", n)
	}
	if n := query(t, url, `
		SELECT count(*)
		FROM daily_sales
		JOIN (SELECT sku, sum(quantity) AS units, sum(quantity * unit_price) AS revenue FROM order_lines GROUP BY sku) sold USING (sku, units, revenue)`); n != 350 {
		t.Errorf("%d of 350 products have the right sums", n)
	}
	if n := query(t, url, `SELECT count(*) FROM daily_sales`); n != 350 {
		t.Errorf("%d rows for 350 products", n)
	}
}
