// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/internal/testproof"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/locking/idempotency/pgtx/pgtest"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// refusingBank is a proof of replicas that refuse everything, with existing accounts.
func refusingBank(t *testing.T, scenario loadtest.Scenario) *loadtest.Proof {
	t.Helper()
	proof := testproof.New(t, scenario, func(ctx context.Context, trial *loadtest.Trial, clients []loadtest.Credentials) error {
		conn := testbed.Connect(t, trial.Postgres)
		pgtest.Migrate(t, conn, "transfer")
		for _, a := range money.Accounts(trial.Plan) {
			if _, err := conn.Exec(ctx, `INSERT INTO accounts (id, owner_id, currency, opening, balance) VALUES ($1, $2, $3, $4, $4)`,
				a.ID, uuid.UUID(clients[a.Client].ID), a.Currency, a.Opening); err != nil {
				return err
			}
		}
		return conn.Close(ctx)
	})
	proof.LockTTL = map[string]time.Duration{"transfer": -judge.LiveMargin + 100*time.Millisecond} // locks must be gone at once
	return proof
}

func TestProof_AServiceThatRefusesEveryTransferIsNotSafe(t *testing.T) {
	proof := refusingBank(t, New().Safe("row", loadtest.NoFault))
	asked := 0
	proof.Leftovers = func(_ context.Context, trial *loadtest.Trial) ([]string, error) {
		s, prefix := trial.Scenario, trial.Prefix
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
	if report.AsExpected || result.Verdict != loadtest.Violated {
		t.Errorf("as expected: %v, verdict %s", report.AsExpected, result.Verdict)
	}
	v := result.Violations
	if v["T1"]+v["T1-DURING"]+v["T2"]+v["T3"]+v["T4"]+v["I-ACK"]+v["I-REJ"]+v["I-ONCE"]+v["I-HOLD"]+v["drift"] != 0 {
		t.Errorf("it moved nothing, but: %v", v)
	}
	if v["I-SPENT"] == 0 || v["I-LIVE"] < 100 || v["T6"] != 1 || asked == 0 {
		t.Errorf("violations %v; want nothing spent, 100 keys undecided, and the lock that was left; looked for %d times", v, asked)
	}
	if line := result.Sentence(); !strings.Contains(line, "0 moved, 0 refused for lack of funds, 0 holds") || !strings.Contains(line, "expected: safe") {
		t.Errorf("its summary: %s", line)
	}
}

func TestProof_LocksThatExpireInTimeAreNotLeft(t *testing.T) {
	proof := refusingBank(t, New().Safe("row", loadtest.NoFault))
	proof.Grace, proof.LockTTL = 100*time.Millisecond, map[string]time.Duration{"transfer": time.Minute}
	left := []string{"a", "b"}
	proof.Leftovers = func(context.Context, *loadtest.Trial) ([]string, error) {
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

// seen is a fault that saw something.
type seen map[string]int64

func (s seen) Inject(context.Context, time.Duration) ([]fault.Event, error) {
	return []fault.Event{{What: "a late write", Seen: s}}, nil
}

func TestProof_ACommitWithAnOlderFenceOnTheWireIsFoundWhateverTheLedgerSays(t *testing.T) {
	proof := refusingBank(t, New().Safe("row", loadtest.NoFault))
	proof.Grace = 100 * time.Millisecond
	proof.Fault = func(*loadtest.Trial) (fault.Fault, error) { return seen{"fence_ignored": 2}, nil }
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := report.Scenarios[0].Violations; v["T4"] != 1 {
		t.Errorf("violations %v, want one of T4", v)
	}
}

func TestProof_AMomentaryLossOfMoneyIsSeenWhileTheLoadRuns(t *testing.T) {
	proof := refusingBank(t, New().Control("naive", loadtest.NoFault, kept, "T3"))
	proof.Grace = 100 * time.Millisecond
	proof.Fault = func(trial *loadtest.Trial) (fault.Fault, error) {
		return loss{trial, testbed.Connect(t, trial.Postgres)}, nil
	}
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := report.Scenarios[0].Violations
	if v["T1-DURING"] == 0 || v["T1"] != 0 || v["T3"] != 0 {
		t.Errorf("violations %v; want the loss seen, and all money back at the end", v)
	}
}

// loss takes a unit from an account, and puts it back after a sample has seen that.
type loss struct {
	trial *loadtest.Trial
	conn  *pgx.Conn
}

func (l loss) Inject(ctx context.Context, _ time.Duration) ([]fault.Event, error) {
	const one = `UPDATE accounts SET balance = balance $1 WHERE id = (SELECT min(id::text)::uuid FROM accounts)`
	if _, err := l.conn.Exec(ctx, strings.Replace(one, "$1", "- 1", 1)); err != nil {
		return nil, err
	}
	testproof.AwaitLook(ctx, l.trial)
	if _, err := l.conn.Exec(ctx, strings.Replace(one, "$1", "+ 1", 1)); err != nil {
		return nil, err
	}
	return nil, l.conn.Close(ctx)
}
