// SPDX-License-Identifier: MIT

package wallet

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest"
	"shop/loadtest/traffic"
	"shop/wallet"
	"shop/wallet/bonus"
)

// fair returns the calls of a correct bonus service: for two credits, and for one of them again by
// another request.
func fair() (calls []bonus.Call, credits []credit) {
	a, b, w := uuid.MustParse(operation1), uuid.MustParse(operation2), uuid.MustParse(wallet1)
	calls = []bonus.Call{
		{Operation: a, Request: uuid.New(), Wallet: w, Attempt: 1, Amount: 100, Bonus: 10, First: true},
		{Operation: b, Request: uuid.New(), Wallet: w, Attempt: 1, Amount: 50, Bonus: 11, First: true},
		{Operation: a, Request: uuid.New(), Wallet: w, Attempt: 1, Amount: 100, Bonus: 10},
	}
	return calls, []credit{{a, w, 100, 10}, {b, w, 50, 11}}
}

var (
	everyFault     = []loadtest.Fault{loadtest.NoFault, StepDown, PrimaryPause, PrimaryKill, CommitUnknown, loadtest.Pause, loadtest.Crash, loadtest.AllKilled}
	everyWalletWay = []string{"naive", "txn", "constant-lock", "lock-late", "inc", "lockid", "combined"}
)

// each runs fn for every strategy under every fault.
func each(fn func(loadtest.Scenario)) {
	for _, fault := range everyFault {
		for _, strategy := range everyWalletWay {
			fn(flow.Safe(strategy, fault))
		}
	}
}

// lockFirst lists the strategies that call the bonus service under the lock.
var lockFirst = []string{"lockid", "combined"}

func TestSideEffects_OnlyLockIDAndCombinedWithoutAFaultCallOncePerOperation(t *testing.T) {
	each(func(s loadtest.Scenario) {
		calls, credits := fair()
		found := auditSideEffects(s, calls, credits, excuses{})
		if must := slices.Contains(lockFirst, s.Strategy) && s.Fault == loadtest.NoFault; must != (len(found) > 0) {
			t.Errorf("%s: %v", s.Name(), found)
		}
		if found := auditSideEffects(s, calls[:2], credits, excuses{}); len(found) != 0 {
			t.Errorf("%s, each with one call: %v", s.Name(), found)
		}
	})
}

// Two wallets share a key: the bonus service refuses the second call, and applies nothing.
func TestSideEffects_ARefusedCallDoesNotCount(t *testing.T) {
	each(func(s loadtest.Scenario) {
		calls, credits := fair()
		calls[2] = bonus.Call{Operation: calls[0].Operation, Request: uuid.New(), Wallet: uuid.New(), Amount: 7, Attempt: 1, Refused: true}
		if found := auditSideEffects(s, calls, credits, excuses{}); len(found) != 0 {
			t.Errorf("%s: %v", s.Name(), found)
		}
	})
}

func TestSideEffects_ARequestCallsOnceWithoutAFaultAndAlwaysUnderInc(t *testing.T) {
	each(func(s loadtest.Scenario) {
		calls, credits := fair()
		calls[2].Request = calls[0].Request
		calls[2].Attempt = 2
		found := strings.Join(auditSideEffects(s, calls, credits, excuses{}), "\n")
		must := s.Fault == loadtest.NoFault || s.Strategy == "inc"
		if got := strings.Contains(found, "request "+calls[0].Request.String()+" called the bonus service again for operation "+operation1); got != must {
			t.Errorf("%s: %q", s.Name(), found)
		}
		if s.Fault == StepDown && slices.Contains(lockFirst, s.Strategy) && found != "" {
			t.Errorf("%s: its transaction may have been lost with the primary, but: %q", s.Name(), found)
		}
	})
}

// A time limit between call and commit makes the request, or the client's next one, call
// again. Operations without a late request have no such excuse.
func TestSideEffects_ALateRequestMayCallAgainExceptInAControl(t *testing.T) {
	each(func(s loadtest.Scenario) {
		for _, again := range []string{"by its request", "by another"} {
			for late, operation := range []string{operation1, operation2} { // the repeated call is about the first
				s.Expect = loadtest.Safe
				if s.Strategy != "inc" && !slices.Contains(lockFirst, s.Strategy) {
					s.Expect = loadtest.Violated
				}
				calls, credits := fair()
				if again == "by its request" {
					calls[2].Request, calls[2].Attempt = calls[0].Request, 2
				}
				strict := len(auditSideEffects(s, calls, credits, excuses{})) > 0
				records := []traffic.Record{
					{Made: uuid.MustParse(operation1), Attempts: []traffic.Attempt{{End: wallet.BonusTimeout - 1}}},
					{Made: uuid.MustParse(operation2), Attempts: []traffic.Attempt{{End: wallet.BonusTimeout - 1}}},
				}
				records[late].Attempts = append(records[late].Attempts, traffic.Attempt{Start: time.Second, End: time.Second + wallet.BonusTimeout})
				must := strict && (late == 1 || s.Expect == loadtest.Violated)
				if found := auditSideEffects(s, calls, credits, excuses{late: lateOperations(records)}); must != (len(found) > 0) {
					t.Errorf("%s, called again %s, with a late request of %s: %v", s.Name(), again, operation, found)
				}
			}
		}
	})
}

// The rules of every run: each breach is planted in an otherwise correct bonus service.
func TestSideEffects_BreachesAreFoundUnderEveryStrategyAndFault(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit)
		want  string
	}{
		"applied twice": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			calls[2].First = true
			return calls, credits
		}, "operation " + operation1 + " was applied 2 times"},
		"answered, but never applied": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			calls[1].First = false
			return calls, credits
		}, "operation " + operation2 + " was applied 0 times"},
		"another bonus the second time": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			calls[2].Bonus = 99
			return calls, credits
		}, "operation " + operation1 + " got 10 on 100 for " + wallet1 + ", and 99 on 100 for " + wallet1},
		"called for another amount": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			calls[2].Amount = 101
			return calls, credits
		}, "and 10 on 101 for "},
		"called for another wallet": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			calls[2].Wallet = uuid.MustParse(wallet2)
			return calls, credits
		}, "for " + wallet2},
		"applied, but not committed": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			return calls, credits[:1]
		}, "operation " + operation2 + " got a bonus of 11, but was not committed"},
		"called under a new id in each attempt": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			calls[2].Operation, calls[2].First = uuid.MustParse(operation3), true
			return calls, credits
		}, "operation " + operation3 + " got a bonus of 10, but was not committed"},
		"another bonus in the balance": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			credits[0].Bonus = 20
			return calls, credits
		}, "operation " + operation1 + " has 20 on 100 for " + wallet1 + ", but the bonus service gave 10 on 100 for " + wallet1},
		"the bonus of another amount": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			credits[1].Amount = 500
			return calls, credits
		}, "operation " + operation2 + " has 11 on 500"},
		"the bonus in another wallet": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			credits[1].Wallet = uuid.MustParse(wallet3)
			return calls, credits
		}, "operation " + operation2 + " has 11 on 50 for " + wallet3},
		"a bonus that was never given": {func(calls []bonus.Call, credits []credit) ([]bonus.Call, []credit) {
			return append(calls[:1], calls[2]), credits
		}, "operation " + operation2 + " has a bonus of 11, but the bonus service was not called"},
	} {
		each(func(s loadtest.Scenario) {
			calls, credits := c.plant(fair())
			if found := strings.Join(auditSideEffects(s, calls, credits, excuses{}), "\n"); !strings.Contains(found, c.want) {
				t.Errorf("%s under %s: found %q, want %q", name, s.Name(), found, c.want)
			}
		})
	}
}

// "busy" says that nothing was credited, but not that the bonus service was not called.
func TestSideEffects_AnAbandonedCreditMayHaveABonusThatNoWalletHas(t *testing.T) {
	gaveUp := func(wallet string, amount int64, took time.Duration) traffic.Record {
		return traffic.Record{
			Intent:  traffic.Intent{Action: Credit, Of: Move{To: uuid.MustParse(wallet), Amount: amount}, GivesUp: true},
			Outcome: traffic.Open, Attempts: []traffic.Attempt{{Outcome: traffic.Open, End: took}},
		}
	}
	calls, credits := fair()
	calls = append(calls[:2], bonus.Call{Operation: uuid.MustParse(operation3), Request: uuid.New(), Wallet: calls[1].Wallet, Amount: 50, Bonus: 13, First: true})
	lost := credits[:1] // neither of the two credits of 50 is stored
	each(func(s loadtest.Scenario) {
		strict := slices.Contains(lockFirst, s.Strategy) && s.Fault == loadtest.NoFault // it is busy before it calls
		for _, c := range []struct {
			name     string
			records  []traffic.Record
			breaches int
		}{
			{"decided", []traffic.Record{{Intent: gaveUp(wallet1, 50, 0).Intent, Outcome: traffic.OK}}, 2},
			{"of another amount, of another wallet", []traffic.Record{gaveUp(wallet1, 51, 0), gaveUp(wallet2, 50, 0)}, 2},
			{"one", []traffic.Record{gaveUp(wallet1, 50, 0)}, map[bool]int{false: 1, true: 2}[strict]},
			{"one, which reached a time limit", []traffic.Record{gaveUp(wallet1, 50, wallet.BonusTimeout)}, 1},
			{"both", []traffic.Record{gaveUp(wallet1, 50, time.Minute), gaveUp(wallet1, 50, time.Minute)}, 0},
		} {
			found := auditSideEffects(s, calls, lost, excuses{givenUp: givenUpCredits(s, c.records)})
			if len(found) != c.breaches {
				t.Errorf("%s, %s: %q, want %d", s.Name(), c.name, found, c.breaches)
			}
		}
	})
}

func TestStoredCredits_AreTheExecutedOnes(t *testing.T) {
	db, _ := ownMongo(t)
	do(t, db, correctWallets())
	do(t, db, insert("wallet_operations", operationDocument(uuid.NewString(), "k7", "credit", `, "refused": "no"`, 1, 0, 409)))
	is, err := readStored(t.Context(), db)
	credits := is.credits()
	want := credit{uuid.MustParse(operation1), uuid.MustParse(wallet1), 100, 10}
	if err != nil || len(credits) != 1 || credits[0] != want {
		t.Errorf("%+v, %v; want %+v", credits, err, want)
	}
}
