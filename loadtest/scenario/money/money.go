// Package money is what the flows of money have in common: the accounts that a plan opens,
// and that in the end they can be spent to the last unit, and no further.
package money

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"shop/loadtest"
	"shop/locking/invariant"
)

// Account is one that a plan opens.
type Account struct {
	ID       uuid.UUID
	Client   int // its owner
	Opening  int64
	Currency string
	Ample    bool // suffices for all that it is asked for: it must never be refused
}

// Accounts are those that a plan opens.
func Accounts(p loadtest.Plan) []Account {
	given, _ := p.Given.([]Account)
	return given
}

// Short is the problem of a request for more money than there is.
const Short = "insufficient-funds"

// AllSpendable is what Postcheck and WronglyRefused find broken.
var AllSpendable = invariant.Invariant{
	Code: "I-SPENT", Name: "all-spendable",
	Means: "all that is available can be spent, and not one more; an account that has enough for all is never refused",
}

// DriftLevel is how far balances are from their entries, and Drift its curve.
const DriftLevel = "drift"

// Drift is drawn from the samples of DriftLevel.
var Drift = loadtest.Curve{Class: "line true", Of: func(s loadtest.Sample) int64 {
	n, _ := s.Level(DriftLevel)
	return n
}}

// What the report says of Drift.
const (
	Levels = "Minor units by which balances differ from what their entries add up to. It must be 0 all along."
	Note   = "Drift is money that balances have, or lack, and no entry accounts for."
)

// Postcheck asks of each account (of each wallet, by what it is called) what is wrong with
// it; "" is nothing. So many are asked at once as have nothing to do with each other.
func Postcheck(ctx context.Context, t *loadtest.Trial, called string, atOnce int, wrong func(ctx context.Context, i int, row []Account) []string) invariant.Findings {
	ctx, stop := context.WithTimeout(ctx, t.Grace())
	defer stop()
	findings := invariant.Findings{}
	findings.Add(AllSpendable.Code)
	i := 0
	for row := range slices.Chunk(Accounts(t.Plan), atOnce) {
		for n, text := range wrong(ctx, i, row) {
			if text != "" {
				findings.Add(AllSpendable.Code, called+" "+row[n].ID.String()+": "+text)
			}
		}
		i += len(row)
	}
	return findings
}

// SpendAll spends what each account of a row has by a field of the answer at a path, which must
// work, and then one more, which must be refused. It says what went wrong with each; "" is nothing.
func SpendAll(ctx context.Context, run *loadtest.Run, replica int, row []Account, path, field string, spend func(n int, key string, amount int64) *loadtest.Intent) []string {
	has, wrong := make([]int64, len(row)), make([]string, len(row))
	for n, a := range row {
		var err error
		if has[n], err = run.Ask(ctx, replica+n, path+a.ID.String(), a.Client, field); err != nil {
			wrong[n] = "it cannot be read: " + err.Error()
		} else if has[n] < 0 {
			wrong[n] = fmt.Sprintf("it has %d", has[n])
		}
	}
	all := settle(ctx, run, replica, row, func(n int, a Account) *loadtest.Intent {
		if wrong[n] != "" || has[n] == 0 {
			return nil
		}
		return spend(n, "all-"+a.ID.String(), has[n])
	})
	for n, r := range all {
		if r.Outcome != loadtest.OK {
			wrong[n] = fmt.Sprintf("it has %d, and spending them ended as %s", has[n], r.Ended())
		}
	}
	more := settle(ctx, run, replica, row, func(n int, a Account) *loadtest.Intent {
		if wrong[n] != "" {
			return nil
		}
		return spend(n, OneMore(a), 1)
	})
	for n, r := range more {
		if r.Last().Problem != Short {
			wrong[n] = fmt.Sprintf("all %d were spent, and 1 more ended as %s", has[n], r.Ended())
		}
	}
	return wrong
}

// settle sends at once what there is to send for the accounts of a row, and gives what came of
// it, by the place in the row.
func settle(ctx context.Context, run *loadtest.Run, replica int, row []Account, of func(n int, a Account) *loadtest.Intent) map[int]loadtest.Record {
	var places []int
	var intents []*loadtest.Intent
	for n, a := range row {
		if i := of(n, a); i != nil {
			places, intents = append(places, n), append(intents, i)
		}
	}
	records := map[int]loadtest.Record{}
	for k, r := range run.SettleAll(ctx, replica, intents...) {
		records[places[k]] = r
	}
	return records
}

// OneMore is the key under which SpendAll asks for one too many.
func OneMore(a Account) string { return "more-" + a.ID.String() }

// WronglyRefused lists what was refused for lack of funds although its payer had enough
// for everything that it was asked for.
func WronglyRefused(records []loadtest.Record, accounts []Account, payer func(loadtest.Intent) uuid.UUID) (wrong []string) {
	ample := map[uuid.UUID]bool{}
	for _, a := range accounts {
		ample[a.ID] = a.Ample
	}
	for _, r := range records {
		if r.Refused(Short) && ample[payer(r.Intent)] {
			wrong = append(wrong, r.Key+": refused, although there was money for all of them")
		}
	}
	return wrong
}

// Misreported lists the refusals for lack of funds whose text is not about what was asked for:
// about the account (in a field of this name) and the amount of the request, and less.
func Misreported(records []loadtest.Record, account string, asked func(loadtest.Intent) (from uuid.UUID, amount int64)) (wrong []string) {
	for _, r := range records {
		if !r.Refused(Short) {
			continue
		}
		var told struct {
			Status    int
			Wanted    int64
			Available *int64
		}
		var fields map[string]json.RawMessage
		var from uuid.UUID
		err := errors.Join(json.Unmarshal(r.Body, &told), json.Unmarshal(r.Body, &fields), json.Unmarshal(fields[account], &from))
		payer, amount := asked(r.Intent)
		if err != nil || told.Status != http.StatusConflict || from != payer || told.Wanted != amount ||
			told.Available == nil || *told.Available < 0 || *told.Available >= amount {
			wrong = append(wrong, fmt.Sprintf("%s: %s", r.Key, strings.TrimSpace(string(r.Body))))
		}
	}
	return wrong
}
