package wallet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"shop/loadtest"
	"shop/wallet"
	"shop/wallet/bonus"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// credit is one that is stored and was done.
type credit struct {
	Operation, Wallet uuid.UUID
	Amount, Bonus     int64
}

// auditSideEffects is what breaks W-SIDE: what the bonus service was asked, beside what
// came of it.
//
// What must hold in every run, whatever the strategy and the fault:
//
//   - The bonus service applied each operation once, and gave one bonus for it. It does
//     so for requests about an operation under one name, for one wallet and one amount;
//     so each request must be like that.
//   - What it applied was committed, as a credit with that bonus: else a bonus was
//     given that no wallet has. A credit cannot be refused, and every key is decided in
//     the end (else that breaks I-LIVE), so that nothing excuses one that is not there, but
//     for a client that gave up after "busy": that says that nothing was credited, and not that the
//     bonus service was not asked. (Without a fault lockid is busy before it asks.)
//   - What was committed was applied, with that bonus: else a wallet has a bonus that
//     was never given. (That the entry is amount + bonus is M2.)
//
// What must hold besides depends on what could have collided:
//
//   - Without a fault no request asks twice (onceByRequest). A request is run again
//     after a collision, and what it asked before that was in vain: that is the mistake of
//     txn, constant-lock and lock-late. lockid collides before it asks; inc asks
//     before it begins; naive does not run again.
//   - inc asks before any transaction, once, so that no fault can make it ask twice.
//   - lockid loses its transaction, with the lock, when the primary goes
//     (step-down, primary-pause, primary-kill), when it is stopped for longer
//     than a transaction may live (pause), and when a connection dies under a commit
//     that had not arrived (commit-unknown). Then it has to begin again, and to ask
//     again. A request that was killed (crash) does not come back. But transactions
//     may not live long there either, and the replicas that start meanwhile take the
//     processor away from those that live.
//   - Without a fault, under lockid, there is one question for an operation
//     (onceByOperation): of two requests with one key the second finds, under
//     the lock, what the first has stored. That is more than the other strategies
//     promise: of two under inc, both ask before either has stored anything. And
//     under a fault one may die between asking and storing; then the other must ask.
//   - Under a nemesis, and in a soak, the first of these rules holds for what was under way while no fault
//     lasted, of the controls too: in the gaps nothing excuses them (disturbedOperations).
//   - A request whose time limit ends between question and commit asks again, or the
//     client's next one does, also without a fault. So these two rules are not for
//     operations in late. A control has no such excuse: it must be caught also on a
//     machine on which each request is late.
func auditSideEffects(s loadtest.Scenario, calls []bonus.Call, credits []credit, e excuses) (breaches []string) {
	asked, requests := map[uuid.UUID][]bonus.Call{}, map[uuid.UUID]int{}
	excused := func(operation uuid.UUID) bool {
		return e.late[operation] && s.Expect != loadtest.Violated || e.disturbed[operation] && s.Strategy != "inc"
	}
	for _, c := range calls {
		if c.Refused { // a key that two wallets share: the second request is refused, and gets nothing
			continue
		}
		asked[c.Operation] = append(asked[c.Operation], c)
		if requests[c.Request]++; requests[c.Request] == 2 && onceByRequest(s) && !excused(c.Operation) {
			breaches = append(breaches, fmt.Sprintf("request %s asked about operation %s again", c.Request, c.Operation))
		}
	}
	committed := map[uuid.UUID]*credit{}
	for i, c := range credits {
		committed[c.Operation] = &credits[i]
		if len(asked[c.Operation]) == 0 {
			breaches = append(breaches, fmt.Sprintf("operation %s has a bonus of %d, and the bonus service was not asked", c.Operation, c.Bonus))
		}
	}
	givenUp := maps.Clone(e.givenUp)
	for operation, questions := range asked {
		if len(questions) > 1 && onceByOperation(s) && !excused(operation) {
			breaches = append(breaches, fmt.Sprintf("operation %s was asked about %d times", operation, len(questions)))
		}
		stored, lost := committed[operation], Move{To: questions[0].Wallet, Amount: questions[0].Amount}
		if stored == nil && givenUp[lost] > 0 { // one for each: no two can be told apart
			givenUp[lost]--
			stored = &credit{operation, lost.To, lost.Amount, questions[0].Bonus}
		}
		breaches = append(breaches, compareCalls(questions, stored)...)
	}
	slices.Sort(breaches)
	return breaches
}

// excuses are what a breach of the rules for one request, or for one credit, may come from.
type excuses struct {
	late, disturbed map[uuid.UUID]bool // operations
	givenUp         map[Move]int       // credits that may have a bonus, and are not there
}

func excusesOf(t *loadtest.Trial, records []loadtest.Record) excuses {
	return excuses{lateOperations(records), disturbedOperations(t, records), givenUpCredits(t.Scenario, records)}
}

// compareCalls compares the questions about one operation with each other, and with
// what is stored of it; nil: nothing is.
func compareCalls(questions []bonus.Call, stored *credit) (breaches []string) {
	is, applied := questions[0], 0
	for _, q := range questions {
		if q.First {
			applied++
		}
		if q.Wallet != is.Wallet || q.Amount != is.Amount || q.Bonus != is.Bonus {
			breaches = append(breaches, fmt.Sprintf("operation %s got %d on %d for %s, and %d on %d for %s",
				is.Operation, is.Bonus, is.Amount, is.Wallet, q.Bonus, q.Amount, q.Wallet))
		}
	}
	if applied != 1 {
		breaches = append(breaches, fmt.Sprintf("operation %s was applied %d times", is.Operation, applied))
	}
	switch {
	case stored == nil:
		breaches = append(breaches, fmt.Sprintf("operation %s got a bonus of %d, and was not committed", is.Operation, is.Bonus))
	case stored.Wallet != is.Wallet || stored.Amount != is.Amount || stored.Bonus != is.Bonus:
		breaches = append(breaches, fmt.Sprintf("operation %s has %d on %d for %s, and the bonus service gave %d on %d for %s",
			is.Operation, stored.Bonus, stored.Amount, stored.Wallet, is.Bonus, is.Amount, is.Wallet))
	}
	return breaches
}

// gaps tells whether there are times without a fault between two of them.
func gaps(s loadtest.Scenario) bool {
	return s.Fault == loadtest.Nemesis || s.Fault == loadtest.Soak
}

func onceByRequest(s loadtest.Scenario) bool {
	return s.Fault == loadtest.NoFault || gaps(s) || s.Strategy == "inc"
}

func onceByOperation(s loadtest.Scenario) bool {
	return s.Fault == loadtest.NoFault && s.Strategy == "lockid"
}

// lateOperations are those of which a request took at least as long as the shortest
// time limit behind the question.
func lateOperations(records []loadtest.Record) map[uuid.UUID]bool {
	operations := map[uuid.UUID]bool{}
	for _, r := range records {
		if late(r) {
			operations[r.Made] = true
		}
	}
	return operations
}

func late(r loadtest.Record) bool {
	return slices.ContainsFunc(r.Attempts, func(a loadtest.Attempt) bool { return a.End-a.Start >= wallet.BonusTimeout })
}

// givenUpCredits are those that clients did not send again after "busy", for which the bonus service may have
// been asked.
func givenUpCredits(s loadtest.Scenario, records []loadtest.Record) map[Move]int {
	credits := map[Move]int{}
	for _, r := range records {
		if r.Action == Credit && r.GivesUp && r.Outcome == loadtest.Open && (!onceByOperation(s) || late(r)) {
			credits[move(r.Intent)]++
		}
	}
	return credits
}

// aftermath is how long a fault may make requests run again after its end: those that wait for
// the transaction of a silent replica to end, and for a primary.
const aftermath = 10 * time.Second

// disturbedOperations are, under a nemesis and in a soak, those of which a request was under way while a
// fault lasted, or in its aftermath.
func disturbedOperations(t *loadtest.Trial, records []loadtest.Record) map[uuid.UUID]bool {
	disturbed := map[uuid.UUID]bool{}
	for _, r := range records {
		if gaps(t.Scenario) && t.Disturbed(r, aftermath) {
			disturbed[r.Made] = true
		}
	}
	return disturbed
}

// storedCredits reads the credits that were done.
func storedCredits(ctx context.Context, db *mongo.Database) ([]credit, error) {
	var stored []struct {
		ID            bson.Binary `bson:"_id"`
		Wallet        bson.Binary
		Amount, Bonus int64
	}
	err := wallet.Aggregate(ctx, db, "wallet_operations", `{"$match": {"kind": "credit", "refused": {"$exists": false}}}`, &stored)
	if err != nil {
		return nil, fmt.Errorf("audit: credits: %w", err)
	}
	credits := make([]credit, len(stored))
	for i, s := range stored {
		operation, err := uuid.FromBytes(s.ID.Data)
		wallet, also := uuid.FromBytes(s.Wallet.Data)
		if err := errors.Join(err, also); err != nil {
			return nil, fmt.Errorf("audit: credits: %w", err)
		}
		credits[i] = credit{operation, wallet, s.Amount, s.Bonus}
	}
	return credits, nil
}
