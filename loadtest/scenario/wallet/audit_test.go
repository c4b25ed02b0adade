package wallet

import (
	"slices"
	"testing"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/locking/invariant"
	"shop/wallet"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// violated is wallets with a violation, and with the replies that its clients got.
func violated(t *testing.T, plant violation) *mongo.Database {
	t.Helper()
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	do(t, db, plant.do)
	answers := correctReplies()
	if plant.replies != nil {
		plant.replies(answers)
	}
	var records []loadtest.Record
	for _, r := range answers {
		records = append(records, r)
	}
	plan := []money.Account{
		{ID: uuid.MustParse(wallet1), Opening: 1000, Currency: "EUR"},
		{ID: uuid.MustParse(wallet2), Client: 1, Currency: "EUR"},
		{ID: uuid.MustParse(wallet3), Opening: 500, Currency: "EUR"},
	}
	clients := []loadtest.Credentials{{ID: uuid.MustParse(client)}, {ID: uuid.MustParse(client2)}}
	if err := LoadHistory(t.Context(), db, plan, records, clients); err != nil {
		t.Fatal(err)
	}
	return db
}

// findIn runs checks over wallets, and gives the ids that they found, by check.
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
			t.Errorf("nothing is planted for %q: it is not known to find anything", check.Name)
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

func TestAuditWallet_CountsHowFarBalancesAreFromTheirEntries(t *testing.T) {
	db, _ := ownMongo(t)
	want := map[string]int64{"M1": 0, "M2": 0, "M3": 0, "I-ONCE": 0, "drift": 0}
	for _, change := range []string{
		``,
		correctWallets(),
		update("wallets", byID(wallet2), `{"$inc": {"balance": 30}}`) + update("wallets", byID(wallet3), `{"$inc": {"balance": -30}}`),
	} {
		if change != "" && change != correctWallets() {
			want["M2"], want["drift"] = 2, 60 // M1 sees nothing: what one has lost the other has
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

// A service that raises an opening, or opens a wallet, has books that agree.
func TestAddUp_CountsFromWhatThePlanOpened(t *testing.T) {
	for do, want := range map[string]int64{
		``:            0,
		raisedAlike:   100,
		walletBeside:  70,
		removedWallet: 500,
	} {
		all, err := wallet.AddUp(t.Context(), violated(t, violation{do: do}), plannedOpenings)
		if err != nil || all.Drift != want {
			t.Errorf("after %q: drift %d, %v, want %d", do, all.Drift, err, want)
		}
	}
}
