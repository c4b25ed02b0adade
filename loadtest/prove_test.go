package loadtest

import (
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
)

// prepareShelves makes the tables, and puts stock there, as the shop would.
func prepareShelves(t *testing.T) func(context.Context, Scenario, Stores, Plan) ([]Credentials, error) {
	return func(ctx context.Context, _ Scenario, stores Stores, plan Plan) ([]Credentials, error) {
		conn := connectTo(t, stores.Postgres)
		for _, up := range migrations(t, "inventory") {
			must(t, conn, ctx, up)
		}
		for _, s := range plan.Stock {
			if _, err := conn.Exec(ctx, `INSERT INTO products (sku, name, price, currency, stock) VALUES ($1, $1, 1, 'EUR', $2)`, s.SKU, s.Quantity); err != nil {
				return nil, err
			}
			if _, err := conn.Exec(ctx, `INSERT INTO stock_movements (sku, kind, quantity) VALUES ($1, 'opening', $2)`, s.SKU, s.Quantity); err != nil {
				return nil, err
			}
		}
		return []Credentials{{ID: uuid.New(), Key: "key"}}, conn.Close(ctx)
	}
}

func refusingProof(t *testing.T, scenario Scenario) *Proof {
	t.Helper()
	program := replicaProgram(t, "good")
	return &Proof{
		Scenarios: []Scenario{scenario},
		Load:      Load{Rate: 100, Duration: time.Second, Seed: 1, Replicas: 2},
		LockTTL:   map[string]time.Duration{"inventory": time.Second}, Patience: time.Second, Server: func(Scenario) (string, error) { return postgresURL(t), nil },
		Prepare: prepareShelves(t),
		Program: func(Scenario, Stores, string) (Program, error) { return program, nil },
		Fault:   func(Scenario, *Replicas, Stores, string) (fault.Fault, error) { return fault.None{}, nil },
		Say:     t.Logf, Tick: func(string) {},
	}
}

// The cheapest way never to oversell is to answer 503 to everything.
func TestProof_AServiceThatRefusesEverythingIsNotSafe(t *testing.T) {
	report, err := refusingProof(t, safe(inventoryFlow, "row", NoFault)).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := report.Scenarios[0]
	if report.AsExpected || result.Verdict != Violated {
		t.Errorf("as expected: %v, verdict %s", report.AsExpected, result.Verdict)
	}
	if result.Violations["S1"] != 0 || result.Violations["oversold"] != 0 || result.OK != 0 {
		t.Errorf("it sold nothing, and yet: %v", result.Violations)
	}
	if result.Violations["I-SOLD"] != drops || result.Violations["I-LIVE"] != 100+drops || result.Unknown != 100 {
		t.Errorf("violations %v, %d unknown; want all %d products unsold and dead, and 100 keys undecided", result.Violations, result.Unknown, drops)
	}
	if line := result.sentence(); !strings.Contains(line, "0 of") || !strings.Contains(line, "expected: safe") {
		t.Errorf("the line about it: %s", line)
	}
}

func TestProof_AControlThatIsNotCaughtIsNotAsExpected(t *testing.T) {
	report, err := refusingProof(t, control(inventoryFlow, "naive", NoFault, salesKept, "S1")).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.AsExpected || !strings.Contains(report.Scenarios[0].sentence(), "S1 was to break") {
		t.Errorf("as expected: %v; %s", report.AsExpected, report.Scenarios[0].sentence())
	}
}

func TestProof_AFaultThatFailsIsAnError(t *testing.T) {
	proof := refusingProof(t, safe(inventoryFlow, "row", Crash))
	proof.Fault = func(Scenario, *Replicas, Stores, string) (fault.Fault, error) {
		return fault.Down{Name: "redis", Server: nowhere{}}, nil
	}
	report, err := proof.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no such server") {
		t.Errorf("error %v", err)
	}
	if report.AsExpected || report.CalledOff() != "called off after 0 of 1" {
		t.Errorf("as expected: %v, %q", report.AsExpected, report.CalledOff())
	}
}

func TestProof_CalledOffEndsItsReplicasAndDropsItsDatabase(t *testing.T) {
	ctx, callOff := context.WithCancel(t.Context())
	proof := refusingProof(t, safe(inventoryFlow, "row", NoFault))
	program, _ := proof.Program(Scenario{}, Stores{}, "")
	var pids []int
	program.Adopt = func(pid int) error { pids = append(pids, pid); return nil }
	var database string
	proof.Program = func(_ Scenario, stores Stores, _ string) (Program, error) {
		database = stores.Postgres
		return program, nil
	}
	proof.Fault = func(Scenario, *Replicas, Stores, string) (fault.Fault, error) {
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

func TestReport_ARunThatWasCalledOffSaysHowFarItCame(t *testing.T) {
	r := exampleReport()
	r.AsExpected, r.Planned = false, 6
	var table strings.Builder
	if err := r.Table(&table); err != nil {
		t.Fatal(err)
	}
	const off = "called off after 2 of 6"
	if page := renderHTML(t, r); !strings.Contains(table.String(), off) || !strings.Contains(page, off) || !strings.Contains(page, "2 of 6</b> scenarios") {
		t.Errorf("%q is not on the page, or not in the table:\n%s", off, table.String())
	}
}

var errNowhere = errors.New("no such server")

type nowhere struct{}

func (nowhere) Kill(context.Context) error  { return errNowhere }
func (nowhere) Start(context.Context) error { return errNowhere }
