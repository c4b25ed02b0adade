package loadtest

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// refusingTill is a proof of replicas that refuse everything, on wallets that are
// there. It keeps the stores that its scenario had.
func refusingTill(t *testing.T, had *Stores) *Proof {
	t.Helper()
	proof := refusingProof(t, safe(walletFlow, "lockid", NoFault))
	proof.Patience, proof.LockTTL = 100*time.Millisecond, map[string]time.Duration{}
	proof.Mongo = func(Scenario) (string, error) { return mongoServer(t), nil }
	proof.Prepare = func(ctx context.Context, _ Scenario, stores Stores, plan Plan) (list []Credentials, err error) {
		*had = stores
		db, err := mongoDatabase(stores.Mongo)
		if err != nil {
			return nil, err
		}
		for range plan.Clients {
			list = append(list, Credentials{ID: uuid.New(), Key: "key"})
		}
		var wallets []string
		for _, w := range plan.Wallets {
			wallets = append(wallets, walletDocument(w.ID.String(), uuid.UUID(list[w.Client].ID).String(), int(w.Opening), int(w.Opening)))
		}
		do(t, db, insert("wallets", wallets...))
		return list, db.Client().Disconnect(ctx)
	}
	return proof
}

func TestProof_ATillThatRefusesEverythingIsNotSafe(t *testing.T) {
	var had Stores
	proof := refusingTill(t, &had)
	proof.Members = func(_ context.Context, s Scenario, database string) (Members, error) {
		if s.Strategy != "lockid" || !strings.Contains(had.Mongo, "/"+database+"?") {
			t.Errorf("asked for the members of %v with %s, in %s", s, database, had.Mongo)
		}
		return Members{Apart: []string{"wallets"}, RolledBack: []string{operation1}}, nil
	}
	proof.Overheard = func(Scenario) Overheard {
		return Overheard{Transactions: 3, Breaches: []string{"a lock that is a constant"}}
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
	if v["M1"]+v["M1-DURING"]+v["M2"]+v["M3"]+v["W-SIDE"]+v["I-ACK"]+v["I-REJ"]+v["I-ONCE"]+v["I-RIGHT"]+v["drift"] != 0 {
		t.Errorf("it did nothing, and yet: %v", v)
	}
	if v["I-SPENT"] == 0 || v["I-LIVE"] < walletBurst || v["M4"] != 1 || v["W-WIRE"] != 1 {
		t.Errorf("violations %v; want nothing spent, all keys undecided, members apart, and what was overheard", v)
	}
	if line := result.sentence(); !strings.Contains(line, "0 credits, 0 debits, 0 payments, 0 refused for lack of funds") || !strings.Contains(line, "expected: safe") {
		t.Errorf("the line about it: %s", line)
	}
	if !slices.ContainsFunc(result.Void, func(reason string) bool { return strings.Contains(reason, "by its name") }) {
		t.Errorf("no replica was ever connected, and that does not make it void: %v", result.Void)
	}
	for _, invariant := range []string{"M1", "M1-DURING", "M2", "M3", "M4", "W-SIDE", "W-WIRE", "I-ACK", "I-REJ", "I-ONCE", "I-RIGHT", "I-LIVE", "I-SPENT"} {
		if _, looked := v[invariant]; !looked {
			t.Errorf("nobody looked at %s", invariant)
		}
	}
	gone(t, had)
}

// gone checks that a scenario has left nothing.
func gone(t *testing.T, had Stores) {
	t.Helper()
	db, err := mongoDatabase(mongoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Client().Disconnect(context.Background()) }()
	left, err := db.Client().ListDatabaseNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range left {
		if strings.Contains(had.Mongo, "/"+name+"?") {
			t.Errorf("%s is still there", name)
		}
	}
	if _, err := private.Post(had.Bonus+"/v1/bonuses", "application/json", http.NoBody); err == nil {
		t.Error("the outside still answers")
	}
}

func TestProof_NobodyListenedNobodyLooked(t *testing.T) {
	var had Stores
	proof := refusingTill(t, &had)
	proof.Overheard = func(Scenario) Overheard { return Overheard{} }
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, invariant := range []string{"M4", "W-WIRE"} {
		if n, looked := report.Scenarios[0].Violations[invariant]; looked {
			t.Errorf("%s: %d, and nobody looked", invariant, n)
		}
	}
}

func TestProof_WalletsNeedAServerForThem(t *testing.T) {
	var had Stores
	proof := refusingTill(t, &had)
	proof.Mongo = nil
	if _, err := proof.Run(t.Context()); err == nil || !strings.Contains(err.Error(), errNoMongo.Error()) {
		t.Errorf("error %v", err)
	}
	proof.Mongo = func(Scenario) (string, error) { return postgresURL(t), nil }
	if _, err := proof.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "not a mongodb:// URL") {
		t.Errorf("error %v", err)
	}
}

func TestProof_AnUpdateThatIsLostForAMomentIsSeenWhileTheLoadRuns(t *testing.T) {
	var had Stores
	proof := refusingTill(t, &had)
	proof.Fault = func(_ Scenario, _ *Replicas, stores Stores, _ string) (fault.Fault, error) {
		return lostUpdate{t, stores}, nil
	}
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v := report.Scenarios[0].Violations; v["M1-DURING"] == 0 || v["M1"]+v["M2"] != 0 {
		t.Errorf("violations %v; want it seen, and all of it there again in the end", v)
	}
}

// lostUpdate takes a unit from each wallet, and puts it back at the end.
type lostUpdate struct {
	t      *testing.T
	stores Stores
}

func (l lostUpdate) Strike(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	db, err := mongoDatabase(l.stores.Mongo)
	if err != nil {
		return nil, err
	}
	do(l.t, db, update("wallets", `{}`, `{"$inc": {"balance": -1}}`))
	fault.Wait(ctx, over)
	do(l.t, db, update("wallets", `{}`, `{"$inc": {"balance": 1}}`))
	return nil, db.Client().Disconnect(ctx)
}
