// SPDX-License-Identifier: MIT

package inventory

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/internal/testproof"
	"shop/loadtest/report"
	"shop/loadtest/site"
	"shop/locking/idempotency/pgtx/pgtest"
	"shop/locking/invariant"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// stockTables creates the tables and the stock, as the shop would.
func stockTables(t *testing.T) func(context.Context, *loadtest.Trial, []loadtest.Credentials) error {
	return func(ctx context.Context, trial *loadtest.Trial, _ []loadtest.Credentials) error {
		conn := testbed.Connect(t, trial.Postgres)
		pgtest.Migrate(t, conn, "inventory")
		for _, s := range Products(trial.Plan) {
			if _, err := conn.Exec(ctx, `INSERT INTO products (sku, name, price, currency, stock) VALUES ($1, $1, $3, $4, $2)`, s.SKU, s.Quantity, s.Price, s.Currency); err != nil {
				return err
			}
			if _, err := conn.Exec(ctx, `INSERT INTO stock_movements (sku, kind, quantity) VALUES ($1, 'opening', $2)`, s.SKU, s.Quantity); err != nil {
				return err
			}
		}
		return conn.Close(ctx)
	}
}

func refusingProof(t *testing.T, scenario loadtest.Scenario) *loadtest.Proof {
	t.Helper()
	return testproof.New(t, scenario, stockTables(t))
}

// A service that answers 503 to everything never oversells.
func TestProof_AServiceThatRefusesEverythingIsNotSafe(t *testing.T) {
	report, err := refusingProof(t, New().Safe("row", loadtest.NoFault)).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := report.Scenarios[0]
	if report.AsExpected || result.Verdict != loadtest.Violated {
		t.Errorf("as expected: %v, verdict %s", report.AsExpected, result.Verdict)
	}
	if result.Violations["S1"] != 0 || result.Violations["oversold"] != 0 || result.OK != 0 {
		t.Errorf("it sold nothing, but: %v", result.Violations)
	}
	open, reads := int64(len(result.Plan.Intents)-result.GivenUp), int64(0)
	for _, i := range result.Plan.Intents {
		if i.Reads {
			reads++
		}
	}
	if result.Violations["I-SOLD"] != drops || result.Violations["I-LIVE"] != open+drops || int64(result.Unknown) != open-reads || result.GivenUp == 0 {
		t.Errorf("violations %v, %d unknown, %d abandoned; want all %d products unsold and dead, and %d keys undecided, reads among them", result.Violations, result.Unknown, result.GivenUp, drops, open)
	}
	if line := result.Sentence(); !strings.Contains(line, "0 of") || !strings.Contains(line, "expected: safe") {
		t.Errorf("its summary: %s", line)
	}
}

func TestProof_AControlThatIsNotCaughtIsNotAsExpected(t *testing.T) {
	report, err := refusingProof(t, New().Control("naive", loadtest.NoFault, kept, "S1")).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.AsExpected || !strings.Contains(report.Scenarios[0].Sentence(), "stock-balance (S1) broken]") {
		t.Errorf("as expected: %v; %s", report.AsExpected, report.Scenarios[0].Sentence())
	}
}

func TestProof_AFaultThatFailsIsNamedAndTheProofFails(t *testing.T) {
	proof := refusingProof(t, New().Safe("row", loadtest.Crash))
	proof.Fault = func(*loadtest.Trial) (fault.Fault, error) {
		return fault.Restart{Name: "redis", Server: nowhere{}, Times: 1}, nil
	}
	report, err := proof.Run(t.Context())
	if err != nil || report.AsExpected || report.CalledOff() != "" {
		t.Fatalf("error %v, as expected: %t, %q", err, report.AsExpected, report.CalledOff())
	}
	if missed := report.Scenarios[0].Missed; !strings.Contains(missed[len(missed)-1], "no such server") {
		t.Errorf("missed %q", missed)
	}
}

// The first scenario shows that the servers are there: one that fails after it costs no other its result, but two do.
func TestProof_AScenarioThatCannotRunIsInconclusive(t *testing.T) {
	row := New().Safe("row", loadtest.NoFault)
	proof := refusingProof(t, row)
	proof.Scenarios = []loadtest.Scenario{row, row, row}
	there, asked := proof.Server, 0
	proof.Server = func(s loadtest.Scenario) (string, error) {
		if asked++; asked > 1 {
			return "", errors.New("no such server")
		}
		return there(s)
	}
	r, err := proof.Run(t.Context())
	if err == nil || r.AsExpected || len(r.Scenarios) != 2 || asked != 5 {
		t.Fatalf("error %v, as expected: %t, %d scenarios, %d runs", err, r.AsExpected, len(r.Scenarios), asked)
	}
	if lost := r.Scenarios[1]; lost.Verdict != loadtest.Inconclusive || !strings.Contains(lost.Sentence(), "it could not be run: no such server") {
		t.Error(lost.Sentence())
	}
	if err := report.Write(t.TempDir(), r); err != nil {
		t.Error(err)
	}
}

func TestProof_AReplicaThatExitsByItselfIsFound(t *testing.T) {
	proof, program := refusingProof(t, New().Safe("row", loadtest.NoFault)), testproof.Program(t, "mortal")
	proof.Program = func(*loadtest.Trial) (site.Program, error) { return program, nil }
	_, result := testproof.Run(t, proof)
	if found := result.Findings["I-LIVE"].IDs; result.Verdict != loadtest.Violated || !slices.Contains(found, "replica 1 exited by itself: exit status 3") {
		t.Errorf("%s, %q", result.Verdict, found)
	}
}

// What a nemesis leaves behind is a violation, which names it.
func TestProof_AReplicaThatLeaksUnderANemesisIsFound(t *testing.T) {
	proof, program := refusingProof(t, New().Safe("row", loadtest.Nemesis)), testproof.Program(t, "leaky")
	proof.Program = func(*loadtest.Trial) (site.Program, error) { return program, nil }
	_, result := testproof.Run(t, proof)
	found := strings.Join(result.Findings["I-LEAK"].IDs, "; ")
	if result.Verdict != loadtest.Violated || !strings.Contains(found, "replica 1: goroutines: ") || !strings.Contains(result.Sentence(), "no-leak (I-LEAK)") {
		t.Errorf("%q; %s", found, result.Sentence())
	}
}

func TestProof_CancelledItEndsItsReplicasAndDropsItsDatabase(t *testing.T) {
	ctx, callOff := context.WithCancel(t.Context())
	proof := refusingProof(t, New().Safe("row", loadtest.NoFault))
	program, _ := proof.Program(nil)
	var pids []int
	program.Adopt = func(pid int) error { pids = append(pids, pid); return nil }
	var database string
	proof.Program = func(trial *loadtest.Trial) (site.Program, error) {
		database = trial.Postgres
		return program, nil
	}
	proof.Fault = func(*loadtest.Trial) (fault.Fault, error) {
		time.AfterFunc(200*time.Millisecond, callOff) // in the middle of the load
		return fault.None{}, nil
	}
	proof.Load.Replicas = 1 // Adopt is called by one goroutine at a time
	if _, err := proof.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("replica with pid %d: %v, want it gone", pid, err)
		}
	}
	if conn, err := pgx.Connect(t.Context(), database); err == nil || len(pids) != 1 {
		t.Errorf("%d replicas; the database %s is still there: %v", len(pids), database, conn.Close(t.Context()))
	}
}

var errNowhere = errors.New("no such server")

type nowhere struct{}

func (nowhere) Kill(context.Context) error  { return errNowhere }
func (nowhere) Start(context.Context) error { return errNowhere }

// A last COMMIT may still be under way when all replicas are gone: the audit
// must see its changes.
func TestProof_TheAuditWaitsForTheLastCommit(t *testing.T) {
	proof := refusingProof(t, New().Safe("row", loadtest.NoFault))
	prepare := proof.Prepare
	committed := make(chan error, 1)
	proof.Prepare = func(ctx context.Context, trial *loadtest.Trial) ([]loadtest.Credentials, error) {
		credentials, err := prepare(ctx, trial)
		if err != nil {
			return credentials, err
		}
		late := testbed.Connect(t, trial.Postgres)
		testbed.Exec(t, late, `BEGIN; UPDATE products SET stock = stock - 1 WHERE sku = 'drop-00'`)
		onlooker := testbed.Connect(t, testbed.Env(t, "SHOP_POSTGRES_URL")) // in another database, so that the audit does not wait for it
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

// commitWhenAwaited commits a transaction, and closes its connection, once an audit
// checks whether any connection is left.
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
