// Package money is what the flows of money have in common: the accounts that a plan opens,
// and that in the end they can be spent to the last unit, and no further.
package money

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
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
// it; "" is nothing.
func Postcheck(ctx context.Context, t *loadtest.Trial, called string, wrong func(ctx context.Context, i int, a Account) string) invariant.Findings {
	ctx, stop := context.WithTimeout(ctx, t.Grace())
	defer stop()
	findings := invariant.Findings{}
	findings.Add(AllSpendable.Code)
	for i, a := range Accounts(t.Plan) {
		if text := wrong(ctx, i, a); text != "" {
			findings.Add(AllSpendable.Code, called+" "+a.ID.String()+": "+text)
		}
	}
	return findings
}

// SpendAll spends what an account has by a field of the answer at a path, which must work,
// and then one more, which must be refused. It says what went wrong; "" is nothing.
func SpendAll(ctx context.Context, run *loadtest.Run, replica int, a Account, path, field string, spend func(key string, amount int64) *loadtest.Intent) string {
	has, err := run.Ask(ctx, replica, path+a.ID.String(), a.Client, field)
	switch {
	case err != nil:
		return "it cannot be read: " + err.Error()
	case has < 0:
		return fmt.Sprintf("it has %d", has)
	case has > 0:
		if all := run.Settle(ctx, replica, spend("all-"+a.ID.String(), has)); all.Outcome != loadtest.OK {
			return fmt.Sprintf("it has %d, and spending them ended as %s", has, all.Ended())
		}
	}
	if more := run.Settle(ctx, replica, spend(OneMore(a), 1)); more.Last().Problem != Short {
		return fmt.Sprintf("all %d were spent, and 1 more ended as %s", has, more.Ended())
	}
	return ""
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
