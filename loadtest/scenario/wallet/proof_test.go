// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/internal/testproof"
	"shop/loadtest/scenario/money"
)

func TestMain(m *testing.M) { testbed.Main(m) }

// refusingWallets is a proof of replicas that refuse everything, with existing wallets.
// It stores the stores of its scenario in had.
func refusingWallets(t *testing.T, had *Stores, env Environment) *loadtest.Proof {
	t.Helper()
	if env.Mongo == nil {
		env.Mongo = func(loadtest.Scenario) (string, error) { return testbed.Env(t, "SHOP_MONGO_URL"), nil }
	}
	prepare := func(ctx context.Context, trial *loadtest.Trial, clients []loadtest.Credentials) error {
		*had = *Of(trial)
		var wallets []string
		for _, w := range money.Accounts(trial.Plan) {
			wallets = append(wallets, walletDocument(w.ID.String(), uuid.UUID(clients[w.Client].ID).String(), int(w.Opening), int(w.Opening)))
		}
		do(t, had.db.Database, insert("wallets", wallets...))
		return nil
	}
	proof := testproof.New(t, New(env).Safe("lockid", loadtest.NoFault), prepare)
	proof.Grace, proof.LockTTL = 100*time.Millisecond, map[string]time.Duration{}
	return proof
}

func TestProof_AServiceThatRefusesEverythingIsNotSafe(t *testing.T) {
	var had Stores
	var env Environment
	env.Members = func(_ context.Context, s loadtest.Scenario, database string) (Members, error) {
		if s.Strategy != "lockid" || !strings.Contains(had.Mongo, "/"+database+"?") {
			t.Errorf("asked for the members of %v with %s, in %s", s, database, had.Mongo)
		}
		return Members{Compared: true, Apart: []string{"wallets"}, RolledBack: []string{operation1}}, nil
	}
	env.WireReport = func(loadtest.Scenario) WireReport {
		return WireReport{Transactions: 3, Breaches: []string{"a lock that is a constant"}}
	}
	report, err := refusingWallets(t, &had, env).Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	result := report.Scenarios[0]
	if report.AsExpected || result.Verdict != loadtest.Violated {
		t.Errorf("as expected: %v, verdict %s", report.AsExpected, result.Verdict)
	}
	v := result.Violations
	if v["M1"]+v["M1-DURING"]+v["M2"]+v["M3"]+v["W-SIDE"]+v["I-ACK"]+v["I-REJ"]+v["I-ONCE"]+v["I-RIGHT"]+v["drift"] != 0 {
		t.Errorf("it did nothing, but: %v", v)
	}
	if v["I-SPENT"] == 0 || v["I-LIVE"] < walletBurst || v["M4"] != 1 || v["W-WIRE"] != 1 {
		t.Errorf("violations %v; want nothing spent, all keys undecided, differing members, and the proxies' findings", v)
	}
	if line := result.Sentence(); !strings.Contains(line, "0 credits, 0 debits, 0 payments, 0 refused for lack of funds") || !strings.Contains(line, "expected: safe") {
		t.Errorf("its summary: %s", line)
	}
	if !slices.ContainsFunc(result.Inconclusive, func(reason string) bool { return strings.Contains(reason, "no connection of a replica") }) {
		t.Errorf("not inconclusive, although no replica was ever connected: %v", result.Inconclusive)
	}
	for _, invariant := range []string{"M1", "M1-DURING", "M2", "M3", "M4", "W-SIDE", "W-WIRE", "I-ACK", "I-REJ", "I-ONCE", "I-RIGHT", "I-LIVE", "I-SPENT"} {
		if _, looked := v[invariant]; !looked {
			t.Errorf("%s was not checked", invariant)
		}
	}
	gone(t, had)
}

// gone checks that a scenario has left nothing behind.
func gone(t *testing.T, had Stores) {
	t.Helper()
	db, _ := ownMongo(t)
	left, err := db.Client().ListDatabaseNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if strings.Contains(had.Mongo, "/"+name+"?") {
			t.Errorf("%s is still there", name)
		}
	}
	if _, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Post(had.Bonus+"/v1/bonuses", "application/json", http.NoBody); err == nil {
		t.Error("the bonus service still answers")
	}
}

func TestProof_WithoutProxiesTheirInvariantsAreNotChecked(t *testing.T) {
	var had Stores
	proof := refusingWallets(t, &had, Environment{WireReport: func(loadtest.Scenario) WireReport { return WireReport{} }})
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, invariant := range []string{"M4", "W-WIRE"} {
		if n, looked := report.Scenarios[0].Violations[invariant]; looked {
			t.Errorf("%s: %d, although it cannot be checked", invariant, n)
		}
	}
}

func TestProof_WalletsNeedAMongoDBServer(t *testing.T) {
	var had Stores
	proof := refusingWallets(t, &had, Environment{})
	proof.Scenarios = []loadtest.Scenario{New(Environment{}).Safe("lockid", loadtest.NoFault)}
	if _, err := proof.Run(t.Context()); err == nil || !strings.Contains(err.Error(), errNoMongo.Error()) {
		t.Errorf("error %v", err)
	}
	proof = refusingWallets(t, &had, Environment{Mongo: func(loadtest.Scenario) (string, error) { return testbed.Env(t, "SHOP_POSTGRES_URL"), nil }})
	if _, err := proof.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not a mongodb:// URL") {
		t.Errorf("error %v", err)
	}
}

func TestProof_AMomentaryLostUpdateIsSeenWhileTheLoadRuns(t *testing.T) {
	var had Stores
	proof := refusingWallets(t, &had, Environment{})
	proof.Fault = func(trial *loadtest.Trial) (fault.Fault, error) {
		return lostUpdate{t, trial}, nil
	}
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := report.Scenarios[0].Violations; v["M1-DURING"] == 0 || v["M1"]+v["M2"] != 0 {
		t.Errorf("violations %v; want the loss seen, and all money back at the end", v)
	}
}

// lostUpdate takes a unit from each wallet, and puts it back after a sample has seen that.
type lostUpdate struct {
	t     *testing.T
	trial *loadtest.Trial
}

func (l lostUpdate) Inject(ctx context.Context, _ time.Duration) ([]fault.Event, error) {
	db := Of(l.trial).db.Database
	do(l.t, db, update("wallets", `{}`, `{"$inc": {"balance": -1}}`))
	testproof.AwaitLook(ctx, l.trial)
	do(l.t, db, update("wallets", `{}`, `{"$inc": {"balance": 1}}`))
	return nil, nil
}
