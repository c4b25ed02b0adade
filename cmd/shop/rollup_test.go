package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"shop/locking/locktest"
)

// lastDue is noon of the last day that is due.
const lastDue = `(((now() - interval '10 minutes') AT TIME ZONE 'UTC')::date - interval '12 hours') AT TIME ZONE 'UTC'`

// slowSales makes sales of that day of 350 products, which are four chunks, and lets each chunk take a while.
var slowSales = []string{
	`INSERT INTO products (sku, name, price, currency, stock)
	 SELECT 'x' || lpad(i::text, 3, '0'), 'x', 100, 'EUR', 1000 FROM generate_series(1, 350) AS i`,
	`WITH sold AS (
	     SELECT gen_random_uuid() AS id, 'x' || lpad(i::text, 3, '0') AS sku, i AS units, ` + lastDue + ` AS at
	     FROM generate_series(1, 350) AS i
	 ), ordered AS (
	     INSERT INTO orders (id, client_id, idempotency_key, status, total, currency, created_at)
	     SELECT id, id, 'k', 'confirmed', units * 100, 'EUR', at FROM sold
	 ), lines AS (
	     INSERT INTO order_lines (order_id, sku, quantity, unit_price) SELECT id, sku, units, 100 FROM sold
	 )
	 INSERT INTO stock_movements (sku, kind, quantity, order_id, created_at) SELECT sku, 'sale', -units, id, at FROM sold`,
	`UPDATE stock_movements SET created_at = ` + lastDue,
	`CREATE FUNCTION slowly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$`,
	`CREATE TRIGGER slowly BEFORE UPDATE ON roll_ups FOR EACH ROW EXECUTE FUNCTION slowly()`,
}

// batchProcess starts shop batch in a process of its own.
func batchProcess(t *testing.T, url string) (*exec.Cmd, *lines) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "batch", "--postgres-url", url, "--lock-prefix", t.Name(), "--mongo-url=", "--roll-up-lock-ttl=2s")
	log := &lines{}
	cmd.Env, cmd.Stderr = append(os.Environ(), asShop+"=1"), log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, log
}

// Three servers begin the batch at once. Two skip the roll-up at once. The third is killed half way. The next
// batch that begins after the TTL finishes the roll-up, and no product is counted twice.
func TestBatch_RollsUpOnOneServerAndOutlivesItsDeath(t *testing.T) {
	t.Parallel()
	url, _ := newDatabase(t)
	for _, statement := range slowSales {
		execute(t, url, statement)
	}
	type server struct {
		cmd *exec.Cmd
		log *lines
	}
	servers := make([]server, 3)
	ended := make(chan int, len(servers))
	for i := range servers {
		cmd, log := batchProcess(t, url)
		servers[i] = server{cmd, log}
		go func() { _ = cmd.Wait(); ended <- i }()
	}
	for range 2 {
		one := servers[<-ended]
		if code := one.cmd.ProcessState.ExitCode(); code != 0 || one.log.find("another server adds up the sales") == nil {
			t.Errorf("exit status %d: want it to skip the roll-up\n%s", code, one.log)
		}
	}
	const half = `SELECT count(*) FROM roll_ups WHERE upto <> '' AND done_at IS NULL`
	locktest.Eventually(t, "the roll-up is half way", func() bool { return query(t, url, half) == 1 })
	for _, s := range servers {
		_ = s.cmd.Process.Signal(syscall.SIGKILL)
	}
	killed := servers[<-ended]
	if status := killed.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
		t.Fatalf("the roll-up ended before it was killed: %v", killed.cmd.ProcessState)
	}
	if query(t, url, half) != 1 {
		t.Fatal("the roll-up was not half way")
	}

	start := time.Now()
	locktest.Eventually(t, "another server finishes the roll-up", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out := &lines{}
		if err := run(ctx, []string{"batch", "--postgres-url", url, "--lock-prefix", t.Name(), "--mongo-url=", "--roll-up-lock-ttl=2s"}, out, out); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return strings.Contains(out.String(), "the sales of a day are added up")
	})
	t.Logf("the roll-up was done %v after the death of its server, with a TTL of 2 s", time.Since(start).Round(time.Millisecond))
	if n := query(t, url, `SELECT count(*) FROM roll_ups WHERE done_at IS NOT NULL`); n != 1 {
		t.Errorf("%d days are done, want one", n)
	}
	if n := query(t, url, `SELECT count(*) FROM daily_sales JOIN order_lines USING (sku) WHERE units = quantity AND revenue = quantity * unit_price`); n != 350 {
		t.Errorf("%d of 350 products have the right sums", n)
	}
	if n := query(t, url, `SELECT count(*) FROM daily_sales`); n != 350 {
		t.Errorf("%d rows for 350 products", n)
	}
}
