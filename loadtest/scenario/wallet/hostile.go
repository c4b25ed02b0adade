// SPDX-License-Identifier: MIT

package wallet

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

// One in offenceEvery operations comes with an offence. Each kind of attack follows one in attackEvery operations.
const (
	offenceEvery = 30
	attackEvery  = 40
)

// offences returns requests of the owner of a wallet: about another client's wallet and about wallets that do not exist,
// and an invalid payment. They have one key.
func offences(wallets []money.Account, key string, own, other int, none uuid.UUID) []*traffic.Intent {
	mine, theirs, client := wallets[own].ID, wallets[other].ID, wallets[own].Client
	ask := func(action traffic.Action, m Move, problem string) *traffic.Intent {
		i := intend(wallets, key, action, m)
		i.Client = client
		return i.Denied(problem)
	}
	return []*traffic.Intent{
		ask(Debit, Move{From: theirs, Amount: 1}, "forbidden"),
		ask(Credit, Move{To: theirs, Amount: 1}, "forbidden"),
		ask(Pay, Move{From: theirs, To: mine, Amount: 1}, "forbidden"),
		readIntent(client, key, theirs).Denied("not-found"),
		readIntent(client, key, none).Denied("not-found"),
		ask(Debit, Move{From: none, Amount: 1}, "not-found"),
		ask(Credit, Move{To: none, Amount: 1}, "not-found"),
		ask(Pay, Move{From: mine, To: none, Amount: 1}, "not-found"),
		ask(Pay, Move{From: mine, To: mine, Amount: 1}, "invalid-request"),
	}
}

// attacks are the requests that are not allowed after an operation.
var attacks = map[traffic.Action][]traffic.Forbidden{
	Credit: {reusedForAmount, reusedForKind}, Debit: {reusedForAmount, reusedForKind}, Pay: {reusedForAmount, reusedForKind},
}

// followUp returns the requests that an answer leads to: some decided keys are attacked.
func followUp(r traffic.Record) []traffic.ScheduledRequest {
	decided := r.Outcome == traffic.OK || r.Refused(money.Short)
	if !decided || r.Reads || !slices.Contains([]string{"credit", "debit", "pay"}, strings.Split(r.Key, "-")[0]) {
		return nil
	}
	return traffic.OneOf(traffic.RandomFor(r.Key), attackEvery, r, attacks[r.Action]...)
}

// reusedForAmount requests one unit more under a decided key.
func reusedForAmount(r traffic.Record) *traffic.Intent {
	m := move(r.Intent)
	m.Amount++
	return reuse(r, r.Action, m)
}

// reusedForKind requests another kind of operation on the same wallet under a decided key.
func reusedForKind(r traffic.Record) *traffic.Intent {
	m := move(r.Intent)
	if r.Action == Credit {
		return reuse(r, Debit, Move{From: m.wallet(), Amount: m.Amount})
	}
	return reuse(r, Credit, Move{To: m.wallet(), Amount: m.Amount})
}

func reuse(r traffic.Record, action traffic.Action, m Move) *traffic.Intent {
	return intend([]money.Account{{ID: m.wallet(), Client: r.Client}}, "reuse-"+string(action)+"-"+r.Key, action, m).Reusing(r)
}
