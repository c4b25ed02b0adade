package loadtest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
)

// prepareAccounts makes the tables, and opens accounts, as the shop would.
func prepareAccounts(t *testing.T) func(context.Context, Scenario, Stores, Plan) ([]Credentials, error) {
	return func(ctx context.Context, _ Scenario, stores Stores, plan Plan) ([]Credentials, error) {
		conn := connectTo(t, stores.Postgres)
		for _, up := range migrations(t, "transfer") {
			must(t, conn, ctx, up)
		}
		var credentials []Credentials
		for range plan.Clients {
			credentials = append(credentials, Credentials{ID: uuid.New(), Key: "key"})
		}
		for _, a := range plan.Accounts {
			if _, err := conn.Exec(ctx, `INSERT INTO accounts (id, owner_id, currency, opening, balance) VALUES ($1, $2, $3, $4, $4)`,
				a.ID, uuid.UUID(credentials[a.Client].ID), a.Currency, a.Opening); err != nil {
				return nil, err
			}
		}
		return credentials, conn.Close(ctx)
	}
}

func refusingBank(t *testing.T, scenario Scenario) *Proof {
	t.Helper()
	proof := refusingProof(t, scenario)
	proof.Prepare = prepareAccounts(t)
	proof.LockTTL = map[string]time.Duration{"transfer": -liveMargin + 100*time.Millisecond} // no patience with locks
	return proof
}

func TestProof_ABankThatRefusesEverythingIsNotSafe(t *testing.T) {
	proof := refusingBank(t, safe(transferFlow, "row", NoFault))
	asked := 0
	proof.Leftovers = func(_ context.Context, s Scenario, prefix string) ([]string, error) {
		if asked++; s.Strategy != "row" || !strings.HasPrefix(prefix, "shop_prove_") {
			t.Errorf("asked for %v at %q", s, prefix)
		}
		return []string{prefix + "/account"}, nil
	}
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := report.Scenarios[0]
	if report.AsExpected || result.Verdict != Violated {
		t.Errorf("as expected: %v, verdict %s", report.AsExpected, result.Verdict)
	}
	v := result.Violations
	if v["T1"]+v["T1-DURING"]+v["T2"]+v["T3"]+v["I-ACK"]+v["I-REJ"]+v["I-ONCE"]+v["I-HOLD"]+v["drift"] != 0 {
		t.Errorf("it moved nothing, and yet: %v", v)
	}
	if v["I-SPENT"] == 0 || v["I-LIVE"] < 100 || v["T6"] != 1 || asked < 2 {
		t.Errorf("violations %v; want nothing spent, 100 keys undecided, and the lock that was left, asked for %d times", v, asked)
	}
	if line := result.sentence(); !strings.Contains(line, "0 moved, 0 refused for lack of funds, 0 holds") || !strings.Contains(line, "expected: safe") {
		t.Errorf("the line about it: %s", line)
	}
}

func TestProof_LocksThatRunOutInTimeAreNotLeft(t *testing.T) {
	proof := refusingBank(t, safe(transferFlow, "row", NoFault))
	proof.Patience = 100 * time.Millisecond
	left := []string{"a", "b"}
	proof.Leftovers = func(context.Context, Scenario, string) ([]string, error) {
		left = left[1:]
		return left, nil
	}
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n, looked := report.Scenarios[0].Violations["T6"]; n != 0 || !looked {
		t.Errorf("T6: %d, %v", n, looked)
	}
}

func TestProof_MoneyThatIsLostForAMomentIsSeenWhileTheLoadRuns(t *testing.T) {
	proof := refusingBank(t, moneyControl("naive", NoFault))
	proof.Patience = 100 * time.Millisecond
	proof.Fault = func(_ Scenario, _ *Replicas, stores Stores, _ string) (fault.Fault, error) {
		return loss{connectTo(t, stores.Postgres)}, nil
	}
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := report.Scenarios[0].Violations
	if v["T1-DURING"] == 0 || v["T1"] != 0 || v["T3"] != 0 {
		t.Errorf("violations %v; want it seen, and all of it there again in the end", v)
	}
}

// loss takes a unit from an account and puts it back at the end.
type loss struct{ conn *pgx.Conn }

func (l loss) Strike(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	const one = `UPDATE accounts SET balance = balance $1 WHERE id = (SELECT min(id::text)::uuid FROM accounts)`
	if _, err := l.conn.Exec(ctx, strings.Replace(one, "$1", "- 1", 1)); err != nil {
		return nil, err
	}
	fault.Wait(ctx, over)
	if _, err := l.conn.Exec(ctx, strings.Replace(one, "$1", "+ 1", 1)); err != nil {
		return nil, err
	}
	return nil, l.conn.Close(ctx)
}
