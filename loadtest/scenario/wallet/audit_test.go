// SPDX-License-Identifier: MIT

package wallet

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
	"shop/wallet"
)

// planOf returns the wallets of correctWallets' plan.
var planOf = []money.Account{
	{ID: uuid.MustParse(wallet1), Opening: 1000, Currency: "EUR"},
	{ID: uuid.MustParse(wallet2), Client: 1, Currency: "EUR"},
	{ID: uuid.MustParse(wallet3), Opening: 500, Currency: "EUR"},
}

// violated creates wallets with a violation, and loads their clients' replies.
func violated(t *testing.T, plant violation) *mongo.Database {
	t.Helper()
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	do(t, db, plant.do)
	answers := correctReplies()
	if plant.replies != nil {
		plant.replies(answers)
	}
	var records []traffic.Record
	for _, r := range answers {
		records = append(records, r)
	}
	clients := []loadtest.Credentials{{ID: uuid.MustParse(client)}, {ID: uuid.MustParse(client2)}}
	if err := LoadHistory(t.Context(), db, planOf, records, clients); err != nil {
		t.Fatal(err)
	}
	return db
}

// findIn runs checks on wallets, and returns the ids that they find, by check.
func findIn(t *testing.T, plant violation, checks ...invariant.Check) map[string][]string {
	t.Helper()
	db := violated(t, plant)
	found := map[string][]string{}
	for _, check := range checks {
		findings, err := invariant.Run(t.Context(), []invariant.Check{check}, wallet.Pipelines(db))
		if err != nil {
			t.Fatal(err)
		}
		finding, looked := findings[check.Invariant]
		if finding.Count != int64(len(finding.IDs)) || !looked {
			t.Errorf("%s: counted %d, listed %v", check.Name, finding.Count, finding.IDs)
		}
		found[check.Name] = finding.IDs
	}
	return found
}

func walletChecks() []invariant.Check { return slices.Concat(wallet.Invariants.Checks, HistoryChecks) }

func TestAuditWallet_FindsEachPlantedViolation(t *testing.T) {
	for _, check := range walletChecks() {
		planted := slices.DeleteFunc(slices.Clone(violations), func(d violation) bool { return d.check != check.Name })
		if len(planted) == 0 {
			t.Errorf("no violation is planted for %q", check.Name)
		}
		for _, plant := range planted {
			t.Run(check.Name+"/"+plant.name, func(t *testing.T) {
				if diff := cmp.Diff(plant.ids, findIn(t, plant, check)[check.Name]); diff != "" {
					t.Errorf("what the check found (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestAuditWallet_FindsNothingInCorrectWallets(t *testing.T) {
	for name, ids := range findIn(t, violation{}, walletChecks()...) {
		if len(ids) != 0 {
			t.Errorf("%s found %v", name, ids)
		}
	}
}

func TestAuditWallet_MeasuresTheDriftOfBalancesFromTheirEntries(t *testing.T) {
	db, _ := ownMongo(t)
	want := map[string]int64{"M1": 0, "M2": 0, "M3": 0, "I-ONCE": 0, "drift": 0}
	for _, change := range []string{
		``,
		correctWallets(),
		update("wallets", byID(wallet2), `{"$inc": {"balance": 30}}`) + update("wallets", byID(wallet3), `{"$inc": {"balance": -30}}`),
	} {
		if change != "" && change != correctWallets() {
			want["M2"], want["drift"] = 2, 60 // M1 finds nothing: one wallet has what the other has lost
		}
		do(t, db, change)
		counts, err := wallet.Audit(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("after %q (-want +got):\n%s", change, diff)
		}
	}
}

// The books of a service that raises an opening, or opens a wallet, are consistent.
func TestDrift_CountsFromWhatThePlanOpened(t *testing.T) {
	for do, want := range map[string]int64{
		``:            0,
		raisedAlike:   100,
		walletBeside:  70,
		removedWallet: 500,
	} {
		drift, err := wallet.Drift(t.Context(), violated(t, violation{do: do}), plannedOpenings)
		if err != nil || drift != want {
			t.Errorf("after %q: drift %d, %v, want %d", do, drift, err, want)
		}
	}
}

// Each field of an answer must match the plan and the collections.
func TestUntrue_FindsEachFieldThatDiffersFromThePlanOrTheCollections(t *testing.T) {
	db := violated(t, violation{})
	is, err := readStored(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := untrue(is, planOf, words(nil)); len(wrong) != 0 {
		t.Errorf("correct wallets: %v", wrong)
	}
	for name, c := range map[string]struct {
		key  string
		edit func(map[string]traffic.Record)
	}{
		"another amount":      {"k1", tells("k1", `"amount":100`, `"amount":10`)},
		"another bonus":       {"k1", tells("k1", `"bonus":10`, `"bonus":0`)},
		"another currency":    {"k1", tells("k1", `EUR`, `USD`)},
		"another time":        {"k1", tells("k1", `00:00:01Z`, `00:00:02Z`)},
		"another kind":        {"k1", tells("k1", `"credit"`, `"debit"`)},
		"another wallet":      {"k1", tells("k1", wallet1, wallet2)},
		"another payee":       {"k3", tells("k3", wallet2, wallet3)},
		"an extra field":      {"k1", tells("k1", `"kind"`, `"fee":0,"kind"`)},
		"no operation":        {"k1", forgery("k1", func(r *traffic.Record) { r.Body = []byte(`[]`) })},
		"no such operation":   {"k1", forgery("k1", func(r *traffic.Record) { r.Made = uuid.New() })},
		"another balance":     {"read", tells("read", `"balance":875`, `"balance":876`)},
		"read in dollars":     {"read", tells("read", `EUR`, `USD`)},
		"an entry is missing": {"read", tells("read", `{"operation":"`+operation5+`","delta":-5,"created_at":"2026-01-01T00:00:01Z"},`, ``)},
		"an entry too many":   {"read", tells("read", `"entries":[`, `"entries":[{"operation":"`+operation4+`","delta":0,"created_at":"2026-01-01T00:00:01Z"},`)},
		"an entry twice":      {"read", tells("read", `"entries":[`, `"entries":[{"operation":"`+operation5+`","delta":-5,"created_at":"2026-01-01T00:00:01Z"},`)},
		"another delta":       {"read", tells("read", `-200`, `-201`)},
		"opened another time": {"read", tells("read", `00:00:00Z`, `00:00:05Z`)},
		"of another wallet":   {"read", tells("read", wallet1, wallet2)},
	} {
		if wrong := untrue(is, planOf, words(c.edit)); len(wrong) != 1 || !strings.HasPrefix(wrong[0], c.key+": ") {
			t.Errorf("%s: %v", name, wrong)
		}
	}
	// The collections agree with the answer, but not with the plan.
	do(t, db, update("wallets", byID(wallet1), `{"$inc": {"opening": 100, "balance": 100}}`))
	if is, err = readStored(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	if wrong := untrue(is, planOf, words(tells("read", `"balance":875`, `"balance":975`))); len(wrong) != 1 {
		t.Errorf("balance and opening both raised, and shown: %v", wrong)
	}
}

func TestMisreported_ARefusalNamesThePayerAndTheAmount(t *testing.T) {
	if found := misreported(words(nil)); len(found) != 0 {
		t.Errorf("correct wallets: %v", found)
	}
	for name, edit := range map[string]func(map[string]traffic.Record){
		"another wallet":     tells("k4", wallet1, wallet2),
		"another amount":     tells("k4", `9999`, `999`),
		"enough":             tells("k4", `875`, `9999`),
		"a negative number":  tells("k4", `875`, `-1`),
		"without the number": tells("k4", `,"available":875`, ``),
		"another status":     tells("k4", `409`, `404`),
		"no text":            forgery("k4", func(r *traffic.Record) { r.Body = nil }),
	} {
		if found := misreported(words(edit)); len(found) != 1 || !strings.HasPrefix(found[0], "k4: ") {
			t.Errorf("%s: %v", name, found)
		}
	}
}
