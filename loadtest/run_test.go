package loadtest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/locking/invariant"
)

// A last COMMIT may still be on its way when all replicas are gone: the audit
// has to see what it changes.
func TestRun_TheAuditWaitsForTheLastCommit(t *testing.T) {
	proof := refusingProof(t, safe(inventoryFlow, "row", NoFault))
	prepare := proof.Prepare
	committed := make(chan error, 1)
	proof.Prepare = func(ctx context.Context, s Scenario, stores Stores, plan Plan) ([]Credentials, error) {
		credentials, err := prepare(ctx, s, stores, plan)
		if err != nil {
			return credentials, err
		}
		late := connectTo(t, stores.Postgres)
		must(t, late, ctx, `BEGIN; UPDATE products SET stock = stock - 1 WHERE sku = 'drop-00'`)
		onlooker := connectTo(t, postgresURL(t)) // in another database: nobody waits for it
		go func() { committed <- commitWhenAwaited(ctx, onlooker, late) }()
		return credentials, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	report, err := proof.Run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if report.Scenarios[0].Violations["S1"] != 1 {
		t.Errorf("the audit did not see the last commit: %v", report.Scenarios[0].Violations)
	}
	cancel()
	if err := <-committed; err != nil {
		t.Error(err)
	}
}

// commitWhenAwaited ends a transaction, and its connection, once an auditor
// asks whether anybody is still there.
func commitWhenAwaited(ctx context.Context, onlooker, late *pgx.Conn) error {
	for awaited := int64(0); awaited == 0; {
		if !fault.Wait(ctx, 10*time.Millisecond) {
			return ctx.Err()
		}
		var err error
		awaited, err = invariant.Number(ctx, onlooker, `
SELECT count(*)
FROM pg_stat_activity auditor
JOIN pg_stat_activity late ON late.datname = auditor.datname
WHERE auditor.query LIKE '%client backend%' AND auditor.pid <> pg_backend_pid()
  AND late.pid = `+strconv.Itoa(int(late.PgConn().PID())))
		if err != nil {
			return err
		}
	}
	if _, err := late.Exec(ctx, `COMMIT`); err != nil {
		return err
	}
	return late.Close(ctx)
}

func TestApart_TheShelfMaySayNeitherMoreNorLessThanTheOrders(t *testing.T) {
	for _, c := range []struct {
		level Level
		found int
	}{
		{Level{"cup", 3, 3}, 0},
		{Level{"cup", 4, 3}, 1}, // a sale was forgotten
		{Level{"cup", 3, 4}, 1}, // a unit is lost
	} {
		if found := apart([]Sample{{0, []Level{c.level}}}); len(found) != c.found {
			t.Errorf("%+v: found %v, want %d", c.level, found, c.found)
		}
	}
}

func TestRun_EachSignOfLifeThatIsMissingBreaksLiveness(t *testing.T) {
	h := NewHistory()
	r := &run{
		proof: &Proof{}, volley: &volley{history: h}, silent: []string{"a silent key"},
		events: []fault.Event{{What: "a fault", At: h.epoch, Until: h.epoch}},
	}
	found := strings.Join(r.lifeless([]Record{{Intent: Intent{Key: "an open key"}, Outcome: Open}}), "; ")
	for _, sign := range []string{"a fault", "a silent key", "an open key"} {
		if !strings.Contains(found, sign) {
			t.Errorf("%q is not in %q", sign, found)
		}
	}
}
