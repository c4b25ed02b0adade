// SPDX-License-Identifier: MIT

package wallet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
	"shop/wallet"
	"shop/wallet/bonus"
)

// operationBody is an operation as an answer must show it.
type operationBody struct {
	ID        uuid.UUID  `json:"id"`
	Kind      string     `json:"kind"`
	Wallet    uuid.UUID  `json:"wallet"`
	To        *uuid.UUID `json:"to,omitempty"`
	Amount    int64      `json:"amount"`
	Bonus     int64      `json:"bonus"`
	Currency  string     `json:"currency"`
	CreatedAt time.Time  `json:"created_at"`
}

// walletBody is a wallet as an answer must show it.
type walletBody struct {
	ID        uuid.UUID   `json:"id"`
	Currency  string      `json:"currency"`
	Balance   int64       `json:"balance"`
	Entries   []entryBody `json:"entries"`
	CreatedAt time.Time   `json:"created_at"`
}

type entryBody struct {
	Operation uuid.UUID `json:"operation"`
	Delta     int64     `json:"delta"`
	CreatedAt time.Time `json:"created_at"`
}

// entriesShown is how many of its latest entries an answer shows of a wallet.
const entriesShown = 20

// stored is the content of the database with which answers are compared.
type stored struct {
	operations map[uuid.UUID]storedOperation // that were executed
	opened     map[uuid.UUID]time.Time
	entries    map[uuid.UUID]map[uuid.UUID]entryBody // by wallet and operation
}

type storedOperation struct {
	operationBody
	client uuid.UUID
	key    string
	order  int64 // of its entries, in that of the times, and within a transaction in that of their ids
}

// document has the fields of the documents of all collections.
type document struct {
	ID                        bson.Binary `bson:"_id"`
	Client, Wallet, Operation bson.Binary
	To                        *bson.Binary
	Key, Kind, Currency       string
	Amount, Bonus, Delta      int64
	CreatedAt                 time.Time `bson:"createdAt"`
}

// readStored reads all operations, wallets and entries.
func readStored(ctx context.Context, db *mongo.Database) (stored, error) {
	s := stored{map[uuid.UUID]storedOperation{}, map[uuid.UUID]time.Time{}, map[uuid.UUID]map[uuid.UUID]entryBody{}}
	var operations, wallets, entries []document
	err := errors.Join(
		wallet.Aggregate(ctx, db, "wallet_operations", `{"$match": {"refused": {"$exists": false}}}`, &operations),
		wallet.Aggregate(ctx, db, "wallets", `{"$project": {"createdAt": 1}}`, &wallets),
		wallet.Aggregate(ctx, db, "wallet_entries", `{"$sort": {"createdAt": 1, "_id": 1}}, {"$project": {"_id": 0}}`, &entries))
	if err != nil {
		return s, fmt.Errorf("audit: operations, wallets and entries: %w", err)
	}
	for _, w := range wallets {
		s.opened[idOf(w.ID)] = w.CreatedAt
	}
	order := map[uuid.UUID]int64{}
	for n, e := range entries {
		of, operation := idOf(e.Wallet), idOf(e.Operation)
		if s.entries[of] == nil {
			s.entries[of] = map[uuid.UUID]entryBody{}
		}
		s.entries[of][operation] = entryBody{operation, e.Delta, e.CreatedAt}
		order[operation] = int64(n + 1)
	}
	for _, o := range operations {
		body := operationBody{idOf(o.ID), o.Kind, idOf(o.Wallet), nil, o.Amount, o.Bonus, o.Currency, o.CreatedAt}
		if o.To != nil {
			to := idOf(*o.To)
			body.To = &to
		}
		s.operations[body.ID] = storedOperation{body, idOf(o.Client), o.Key, order[body.ID]}
	}
	return s, nil
}

// effects returns the executed operations by their keys.
func (is stored) effects() []judge.Stored {
	list := []judge.Stored{} // not nil: the database was read
	for _, o := range is.operations {
		list = append(list, judge.Stored{Client: o.client, Key: o.key, Order: o.order, Answer: traffic.Encode(map[string]any{"bonus": o.Bonus})})
	}
	return list
}

// idOf converts a UUID from MongoDB; anything else becomes the zero UUID.
func idOf(b bson.Binary) uuid.UUID {
	id, _ := uuid.FromBytes(b.Data)
	return id
}

// untrue lists the successful answers that differ in a field from the plan or the collections.
func untrue(is stored, opened []money.Account, records []traffic.Record) (wrong []string) {
	plan := map[uuid.UUID]money.Account{}
	for _, a := range opened {
		plan[a.ID] = a
	}
	for _, r := range records {
		if r.Outcome != traffic.OK {
			continue
		}
		var want any
		if r.Action == ReadWallet {
			want = is.wallet(plan[r.Of.(Read).Wallet], r)
		} else {
			o := is.operations[r.Made].operationBody
			o.Currency = plan[move(r.Intent).wallet()].Currency
			want = o
		}
		if !bytes.Equal(traffic.Canonical(r.Body), traffic.Canonical(traffic.Encode(want))) {
			wrong = append(wrong, fmt.Sprintf("%s: answered with %s", r.Key, strings.TrimSpace(string(r.Body))))
		}
	}
	return wrong
}

// wallet returns what a read of a wallet must show, given the operations that it does show: each has
// its stored entry, the latest first. If all entries are shown, they add up to the balance.
func (is stored) wallet(plan money.Account, r traffic.Record) walletBody {
	var shown walletBody
	_ = json.Unmarshal(r.Body, &shown) // a malformed answer differs from want
	want := walletBody{ID: plan.ID, Currency: plan.Currency, Balance: max(0, shown.Balance), Entries: []entryBody{}, CreatedAt: is.opened[plan.ID]}
	sum, seen := plan.Opening, map[uuid.UUID]bool{}
	for _, e := range shown.Entries[:min(len(shown.Entries), entriesShown)] {
		entry := is.entries[plan.ID][e.Operation] // the zero entry, if none is stored
		if !seen[e.Operation] {
			want.Entries = append(want.Entries, entry)
		}
		seen[e.Operation] = true
		sum += entry.Delta
	}
	slices.SortStableFunc(want.Entries, func(a, b entryBody) int { return b.CreatedAt.Compare(a.CreatedAt) })
	if len(shown.Entries) < entriesShown {
		want.Balance = sum
	}
	return want
}

// misreported lists the refusals for lack of funds whose body does not match the request.
func misreported(records []traffic.Record) []string {
	return money.Misreported(records, "wallet", func(i traffic.Intent) (uuid.UUID, int64) { return move(i).From, move(i).Amount })
}

// credit is a stored credit that was executed.
type credit struct {
	Operation, Wallet uuid.UUID
	Amount, Bonus     int64
}

// auditSideEffects lists the breaches of W-SIDE. It compares the calls of the bonus service
// with the stored credits.
//
// In every run, whatever the strategy and the fault:
//
//   - The bonus service applied each operation once, and gave one bonus for it. It does
//     so for calls about an operation under the same id, for the same wallet and amount,
//     so the calls about an operation must be alike.
//   - Every applied bonus was committed, in a credit with that bonus; else a bonus was
//     given that no wallet has. A credit cannot be refused, and every key is decided in
//     the end (or I-LIVE is broken). The only excuse for a missing credit is a client that
//     abandoned it after "busy": "busy" says that nothing was credited, but not that the
//     bonus service was not called. (Without a fault lockid and combined are busy before they call.)
//   - Every committed bonus was applied; else a wallet has a bonus that was never
//     given. (M2 checks that the entry is amount + bonus.)
//
// Further rules depend on what could have collided:
//
//   - Without a fault no request calls twice (onceByRequest). A request that repeats its
//     work after a collision has called in vain before: that is the mistake of txn,
//     constant-lock and lock-late. lockid collides before it calls; inc calls before its
//     transaction begins; naive repeats nothing.
//   - inc calls once, before any transaction, so that no fault can make it call twice.
//   - lockid begins again, and calls again, after it has lost its transaction and the lock
//     with it: the primary failed (step-down, primary-pause, primary-kill), the replica was
//     stopped for longer than a transaction may live (pause), or the connection broke before
//     a commit arrived (commit-unknown). A request that was killed (crash) does not continue.
//     But under crash, starting replicas take up the processor, and the transactions of other
//     requests may exceed their short lifetime.
//   - Without a fault lockid and combined call once for an operation (onceByOperation): the second of
//     two requests with one key finds, under the lock, what the first has stored. The other
//     strategies do not promise that: two requests under inc both call before either
//     has stored anything. And under a fault the first may die between its call and its
//     write; then the second must call.
//   - Under a nemesis, onceByRequest applies to operations that were under way
//     while no fault lasted, also those of controls (disturbedOperations).
//   - A request whose time limit ends between call and commit, or the client's next
//     request, calls again even without a fault. Both rules therefore exempt the operations
//     in late. A control has no such excuse: it must be caught even on a machine
//     on which every request is late.
func auditSideEffects(s loadtest.Scenario, calls []bonus.Call, credits []credit, e excuses) (breaches []string) {
	asked, requests := map[uuid.UUID][]bonus.Call{}, map[uuid.UUID]int{}
	excused := func(operation uuid.UUID) bool {
		return e.late[operation] && s.Expect != loadtest.Violated || e.disturbed[operation] && s.Strategy != "inc"
	}
	for _, c := range calls {
		if c.Refused { // two wallets share a key: the service refuses the second call, and gives nothing
			continue
		}
		asked[c.Operation] = append(asked[c.Operation], c)
		if requests[c.Request]++; requests[c.Request] == 2 && onceByRequest(s) && !excused(c.Operation) {
			breaches = append(breaches, fmt.Sprintf("request %s called the bonus service again for operation %s", c.Request, c.Operation))
		}
	}
	committed := map[uuid.UUID]*credit{}
	for i, c := range credits {
		committed[c.Operation] = &credits[i]
		if len(asked[c.Operation]) == 0 {
			breaches = append(breaches, fmt.Sprintf("operation %s has a bonus of %d, but the bonus service was not called", c.Operation, c.Bonus))
		}
	}
	givenUp := maps.Clone(e.givenUp)
	for operation, questions := range asked {
		if len(questions) > 1 && onceByOperation(s) && !excused(operation) {
			breaches = append(breaches, fmt.Sprintf("operation %s caused %d calls of the bonus service", operation, len(questions)))
		}
		stored, lost := committed[operation], Move{To: questions[0].Wallet, Amount: questions[0].Amount}
		if stored == nil && givenUp[lost] > 0 { // one excuse for each: equal credits cannot be distinguished
			givenUp[lost]--
			stored = &credit{operation, lost.To, lost.Amount, questions[0].Bonus}
		}
		breaches = append(breaches, compareCalls(questions, stored)...)
	}
	slices.Sort(breaches)
	return breaches
}

// excuses exempt operations and credits from rules.
type excuses struct {
	late, disturbed map[uuid.UUID]bool // operations
	givenUp         map[Move]int       // abandoned credits, which may have a bonus although they are not stored
}

func excusesOf(t *loadtest.Trial, records []traffic.Record) excuses {
	return excuses{lateOperations(records), disturbedOperations(t, records), givenUpCredits(t.Scenario, records)}
}

// compareCalls compares the calls about one operation with each other, and with the stored
// credit; nil: none is stored.
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
		breaches = append(breaches, fmt.Sprintf("operation %s got a bonus of %d, but was not committed", is.Operation, is.Bonus))
	case stored.Wallet != is.Wallet || stored.Amount != is.Amount || stored.Bonus != is.Bonus:
		breaches = append(breaches, fmt.Sprintf("operation %s has %d on %d for %s, but the bonus service gave %d on %d for %s",
			is.Operation, stored.Bonus, stored.Amount, stored.Wallet, is.Bonus, is.Amount, is.Wallet))
	}
	return breaches
}

func onceByRequest(s loadtest.Scenario) bool {
	return s.Fault == loadtest.NoFault || s.Fault == loadtest.Nemesis || s.Strategy == "inc"
}

func onceByOperation(s loadtest.Scenario) bool {
	return s.Fault == loadtest.NoFault && (s.Strategy == "lockid" || s.Strategy == loadtest.Combined)
}

// lateOperations returns the operations with a request that took at least as long as the shortest
// time limit after the call.
func lateOperations(records []traffic.Record) map[uuid.UUID]bool {
	operations := map[uuid.UUID]bool{}
	for _, r := range records {
		if late(r) {
			operations[r.Made] = true
		}
	}
	return operations
}

func late(r traffic.Record) bool {
	return slices.ContainsFunc(r.Attempts, func(a traffic.Attempt) bool { return a.End-a.Start >= wallet.BonusTimeout })
}

// givenUpCredits counts the credits that clients abandoned after "busy", and for which the bonus service
// may have been called.
func givenUpCredits(s loadtest.Scenario, records []traffic.Record) map[Move]int {
	credits := map[Move]int{}
	for _, r := range records {
		if r.Action == Credit && r.GivesUp && r.Outcome == traffic.Open && (!onceByOperation(s) || late(r)) {
			credits[move(r.Intent)]++
		}
	}
	return credits
}

// aftermath is how long after its end a fault may still make requests repeat their work: they wait
// until the transaction of a silent replica ends, and for a primary.
const aftermath = 10 * time.Second

// disturbedOperations returns, under a nemesis, the operations with a request that was under way during a fault or its aftermath.
func disturbedOperations(t *loadtest.Trial, records []traffic.Record) map[uuid.UUID]bool {
	disturbed := map[uuid.UUID]bool{}
	for _, r := range records {
		if t.Scenario.Fault == loadtest.Nemesis && t.Disturbed(r, aftermath) {
			disturbed[r.Made] = true
		}
	}
	return disturbed
}

// credits returns the executed credits.
func (is stored) credits() (credits []credit) {
	for _, o := range is.operations {
		if o.Kind == "credit" {
			credits = append(credits, credit{o.ID, o.Wallet, o.Amount, o.Bonus})
		}
	}
	return credits
}
