// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/google/uuid"

	"shop/loadtest"
	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

// One in offenceEvery requests comes with a forbidden or invalid request. One in reuseEvery keys each
// is reused for another amount, or for another kind of operation.
const (
	offenceEvery = 30
	reuseEvery   = 40
)

// offences returns requests about other clients' wallets, about wallets that do not exist, and invalid
// payments.
func offences(random *rand.Rand, load traffic.Load, wallets []money.Account, n int) (requests []traffic.ScheduledRequest) {
	for i := 0; i < n; i += offenceEvery {
		own := random.IntN(ring)
		kinds := offencesOf(wallets, fmt.Sprintf("offence-%d-%06d", load.Seed, i), own, own+1, traffic.DrawID(random))
		at := load.Between(random, i, n)
		requests = append(requests, traffic.ScheduledRequest{At: at, Replica: random.IntN(load.Replicas), Intent: kinds[i/offenceEvery%len(kinds)]})
	}
	return requests
}

// offencesOf returns all offences of the owner of a wallet, with another client's wallet and with an id
// that does not exist.
func offencesOf(wallets []money.Account, key string, own, other int, none uuid.UUID) []*traffic.Intent {
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

// followUp returns the requests that an answer leads to: some decided keys are reused, for another
// amount, or for another kind of operation on the same wallet.
func followUp(r traffic.Record) (next []traffic.ScheduledRequest) {
	decided := r.Outcome == traffic.OK || r.Refused(money.Short)
	if !decided || r.Reads || !slices.Contains([]string{"credit", "debit", "pay"}, strings.Split(r.Key, "-")[0]) {
		return nil
	}
	random := traffic.RandomFor(r.Key)
	kinds := reuses(r)
	if kind := random.IntN(reuseEvery); kind < len(kinds) {
		next = append(next, traffic.Soon(random, kinds[kind]))
	}
	return next
}

// reuses returns requests that reuse a decided key.
func reuses(r traffic.Record) []*traffic.Intent {
	again := func(action traffic.Action, m Move) *traffic.Intent {
		i := intend([]money.Account{{ID: m.wallet(), Client: r.Client}}, "reuse-"+string(action)+"-"+r.Key, action, m)
		i.SharedKey = r.IdempotencyKey()
		return i.Denied(keyReused)
	}
	m := move(r.Intent)
	more := m
	more.Amount++
	other, otherMove := Credit, Move{To: m.wallet(), Amount: m.Amount}
	if r.Action == Credit {
		other, otherMove = Debit, Move{From: m.wallet(), Amount: m.Amount}
	}
	return []*traffic.Intent{again(r.Action, more), again(other, otherMove)}
}

// offend sends, after the load, each kind of forbidden request. I-DENY checks the answers.
func offend(ctx context.Context, t *loadtest.Trial) {
	wallets := money.Accounts(t.Plan)
	for k := range offencesOf(wallets, "", 0, 1, uuid.Nil) {
		t.Settle(ctx, k, offencesOf(wallets, fmt.Sprintf("last-offence-%d", k), 0, 1, uuid.New())[k])
	}
	records := t.History.Records()
	for n, action := range []traffic.Action{Credit, Debit, Pay} {
		i := slices.IndexFunc(records, func(r traffic.Record) bool {
			return r.Action == action && r.Outcome == traffic.OK && len(r.Refusals) == 0
		})
		if i < 0 {
			continue
		}
		r := records[i]
		r.SharedKey, r.Key = r.IdempotencyKey(), "last-"+r.Key
		for _, again := range reuses(r) {
			t.Settle(ctx, n, again)
		}
	}
}
