// SPDX-License-Identifier: MIT

// Package money holds what the flows of money share: the accounts that a plan opens, their model, and the
// check that in the end each can be spent to its last unit, and no further.
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
	"shop/loadtest/judge"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Account is an account that a plan opens.
type Account struct {
	ID       uuid.UUID
	Client   int // its owner
	Opening  int64
	Currency string
	Ample    bool // covers everything that it is to pay, so no payment from it may be refused
}

// Accounts returns the accounts that a plan opens.
func Accounts(p traffic.Plan) []Account {
	given, _ := p.Given.([]Account)
	return given
}

// Short is the problem of a request for more money than is available.
const Short = "insufficient-funds"

// AllSpendable is the invariant that Postcheck and WronglyRefused check.
var AllSpendable = invariant.Invariant{
	Code: "I-SPENT", Name: "all-spendable",
	Means: "the whole available amount can be spent, and not one unit more; an account that covers all its payments is never refused",
}

// DriftLevel is the level by which balances differ from the sums of their entries.
const DriftLevel = "drift"

// Shown is what the report shows of a flow of money: the curve is that of DriftLevel.
func Shown(guard, clients string, workload func(traffic.Plan) string, summary func(loadtest.Result) string) loadtest.Shown {
	return loadtest.Shown{
		Guard: guard, Workload: workload, Summary: summary,
		Curves: []loadtest.Curve{{Name: "drift", Of: func(s judge.Sample) int64 {
			n, _ := s.Level(DriftLevel)
			return n
		}}},
		Words: loadtest.Words{
			Workload: clients,
			Done:     "done",
			Levels:   "Minor units by which balances differ from the sums of their entries. They must be 0 throughout.",
			Note:     "Drift is money that balances have, or lack, without an entry that accounts for it.",
		},
	}
}

// Postcheck calls wrong once for each row of atOnce accounts. The accounts of a row must not pay each
// other. wrong returns a text for each account, "" if it is correct. called is what the flow calls an account.
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

// SpendAll reads a field at a path for each account of a row, spends that amount, which must
// succeed, and then one unit more, which must be refused. It returns a text for each account, "" if
// it is correct.
func SpendAll(ctx context.Context, run *traffic.Run, replica int, row []Account, path, field string, spend func(n int, key string, amount int64) *traffic.Intent) []string {
	has, wrong := make([]int64, len(row)), make([]string, len(row))
	for n, a := range row {
		var err error
		if has[n], err = run.ReadNumber(ctx, replica+n, path+a.ID.String(), a.Client, field); err != nil {
			wrong[n] = "cannot be read: " + err.Error()
		} else if has[n] < 0 {
			wrong[n] = fmt.Sprintf("it has a negative amount: %d", has[n])
		}
	}
	all := settle(ctx, run, replica, row, func(n int, a Account) *traffic.Intent {
		if wrong[n] != "" || has[n] == 0 {
			return nil
		}
		return spend(n, "all-"+a.ID.String(), has[n])
	})
	for n, r := range all {
		if r.Outcome != traffic.OK {
			wrong[n] = fmt.Sprintf("it has %d, but spending all of it ended as %s", has[n], r.Ended())
		}
	}
	more := settle(ctx, run, replica, row, func(n int, a Account) *traffic.Intent {
		if wrong[n] != "" {
			return nil
		}
		return spend(n, OneMore(a), 1)
	})
	for n, r := range more {
		if r.Last().Problem != Short {
			wrong[n] = fmt.Sprintf("after all %d were spent, spending 1 more ended as %s", has[n], r.Ended())
		}
	}
	return wrong
}

// settle sends an intent for each account of a row, all at once, nil: none. It returns the
// records by the account's place in the row.
func settle(ctx context.Context, run *traffic.Run, replica int, row []Account, of func(n int, a Account) *traffic.Intent) map[int]traffic.Record {
	var places []int
	var intents []*traffic.Intent
	for n, a := range row {
		if i := of(n, a); i != nil {
			places, intents = append(places, n), append(intents, i)
		}
	}
	records := map[int]traffic.Record{}
	for k, r := range run.SettleAll(ctx, replica, intents...) {
		records[places[k]] = r
	}
	return records
}

// OneMore is the key under which SpendAll spends one unit too many.
func OneMore(a Account) string { return "more-" + a.ID.String() }

// WronglyRefused lists the requests that were refused for lack of funds although their payer had
// enough for all its payments.
func WronglyRefused(records []traffic.Record, accounts []Account, payer func(traffic.Intent) uuid.UUID) (wrong []string) {
	ample := map[uuid.UUID]bool{}
	for _, a := range accounts {
		ample[a.ID] = a.Ample
	}
	for _, r := range records {
		if r.Refused(Short) && ample[payer(r.Intent)] {
			wrong = append(wrong, r.Key+": refused although the payer had enough for all its payments")
		}
	}
	return wrong
}

// Misreported lists the refusals for lack of funds whose body does not match the request: the
// account (in a field of this name), the wanted amount, and a smaller available amount.
func Misreported(records []traffic.Record, account string, asked func(traffic.Intent) (from uuid.UUID, amount int64)) (wrong []string) {
	for _, r := range records {
		if !r.Refused(Short) {
			continue
		}
		var answer struct {
			Status    int
			Wanted    int64
			Available *int64
		}
		var fields map[string]json.RawMessage
		var from uuid.UUID
		err := errors.Join(json.Unmarshal(r.Body, &answer), json.Unmarshal(r.Body, &fields), json.Unmarshal(fields[account], &from))
		payer, amount := asked(r.Intent)
		if err != nil || answer.Status != http.StatusConflict || from != payer || answer.Wanted != amount ||
			answer.Available == nil || *answer.Available < 0 || *answer.Available >= amount {
			wrong = append(wrong, fmt.Sprintf("%s: %s", r.Key, strings.TrimSpace(string(r.Body))))
		}
	}
	return wrong
}
