// SPDX-License-Identifier: MIT

package transfer

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

// offenceEvery: one in this many transfers comes with a forbidden or invalid request.
const offenceEvery = 40

// offences returns requests about other clients' accounts, about accounts and transfers that do
// not exist, and invalid transfers.
func offences(random *rand.Rand, load traffic.Load, n int, accounts []money.Account) (requests []traffic.ScheduledRequest) {
	for i := 0; i < n; i += offenceEvery {
		own := accounts[random.IntN(clients)]
		kinds := offencesOf(fmt.Sprintf("offence-%d-%06d", load.Seed, i), own, accounts[stranger(own.Client)], traffic.DrawID(random))
		requests = append(requests, traffic.ScheduledRequest{At: load.At(i, n), Replica: random.IntN(load.Replicas), Intent: kinds[i/offenceEvery%len(kinds)]})
	}
	return requests
}

// offencesOf returns all offences of the owner of an account, with another client's account and with
// an id that does not exist.
func offencesOf(key string, own, other money.Account, none uuid.UUID) []*traffic.Intent {
	pay := func(from, to uuid.UUID, currency string) *traffic.Intent {
		i := moveIntent(own.Client, key, &Move{From: from, To: to, Amount: 1})
		i.Body = traffic.Encode(map[string]any{"from": from, "to": to, "amount": 1, "currency": currency})
		return i
	}
	about := traffic.Record{Intent: *pay(own.ID, other.ID, currency)}
	about.Key = "of-" + key
	return []*traffic.Intent{
		pay(other.ID, own.ID, currency).Denied("forbidden"),
		readIntent(own.Client, key, Read{Account: other.ID}).Denied("not-found"),
		pay(none, own.ID, currency).Denied("not-found"),
		pay(own.ID, none, currency).Denied("not-found"),
		readIntent(own.Client, key, Read{Transfer: none}).Denied("not-found"),
		readIntent(own.Client, key, Read{Account: none}).Denied("not-found"),
		postIntent(about, none, 0).Denied("not-found"),
		voidIntent(about, none).Denied("not-found"),
		pay(own.ID, own.ID, currency).Denied("invalid-request"),
		pay(own.ID, other.ID, "USD").Denied("invalid-request"),
	}
}

// stranger returns another client whose account is of the same group.
func stranger(client int) int { return (client + groups) % clients }

// Each kind of forbidden request follows one in this many transfers, or holds.
const (
	attackEvery     = 40
	holdAttackEvery = 8
)

// followUp returns the requests that an answer leads to. The client reads each transfer, and settles
// each hold. Another client reads, posts or voids some of them. Some keys are reused, for another
// amount or for a void. Some settled holds are settled again.
func followUp(r traffic.Record) []traffic.ScheduledRequest {
	random := traffic.RandomFor(r.Key)
	next := settle(r)
	add := func(i *traffic.Intent) {
		next = append(next, traffic.Soon(random, i))
	}
	ok, planned := r.Outcome == traffic.OK, strings.HasPrefix(r.Key, "move-")
	kind, holdKind := random.IntN(attackEvery), random.IntN(holdAttackEvery)
	switch {
	case planned && ok:
		add(readIntent(r.Client, "read-"+r.Key, Read{Transfer: r.Made}))
		if kinds := attacks(r); kind < len(kinds) {
			add(kinds[kind](r))
		}
		if r.Action == Reserve && holdKind < len(holdAttacks) {
			add(holdAttacks[holdKind](r))
		}
	case planned && r.Refused(money.Short) && kind == 0:
		add(reusedForAmount(r))
	case ok && len(r.Refusals) == 0 && (r.Action == PostHold || r.Action == VoidHold):
		add(readIntent(r.Client, "read-"+r.Key, Read{Transfer: r.Made}))
		if kinds := endedAttacks; holdKind < len(kinds) {
			add(kinds[holdKind](r))
		}
	}
	return next
}

// attack returns a forbidden request that follows an answer.
type attack func(traffic.Record) *traffic.Intent

// attacks returns the attacks on any transfer.
func attacks(r traffic.Record) []attack {
	kinds := []attack{strangerReads, reusedForAmount, reusedForVoid}
	if r.Action == Pay {
		kinds = append(kinds, postPaid)
	}
	return kinds
}

// The attacks on a hold, and on a posted or voided hold.
var (
	holdAttacks  = []attack{strangerPosts, strangerVoids, postMore}
	endedAttacks = []attack{postAgain, voidAgain}
)

// by returns a record with the client and the key of an attack.
func by(r traffic.Record, client int, name string) traffic.Record {
	r.Client, r.SharedKey, r.Key = client, "", name+"-"+r.Key
	return r
}

func strangerReads(r traffic.Record) *traffic.Intent {
	return readIntent(stranger(r.Client), "spy-"+r.Key, Read{Transfer: r.Made}).Denied("not-found")
}

func strangerPosts(r traffic.Record) *traffic.Intent {
	return postIntent(by(r, stranger(r.Client), "steal"), r.Made, 0).Denied("not-found")
}

func strangerVoids(r traffic.Record) *traffic.Intent {
	return voidIntent(by(r, stranger(r.Client), "steal"), r.Made).Denied("not-found")
}

// postMore posts more than the held amount.
func postMore(r traffic.Record) *traffic.Intent {
	return postIntent(by(r, r.Client, "more"), r.Made, move(r.Intent).Amount+1).Denied("invalid-request")
}

// postPaid posts a transfer that is not a hold.
func postPaid(r traffic.Record) *traffic.Intent {
	return postIntent(by(r, r.Client, "paid"), r.Made, 0).Denied("already-settled")
}

// postAgain and voidAgain end an ended hold again, under a new key.
func postAgain(r traffic.Record) *traffic.Intent {
	return postIntent(by(r, r.Client, "again"), r.Made, 0).Denied("already-settled")
}

func voidAgain(r traffic.Record) *traffic.Intent {
	return voidIntent(by(r, r.Client, "again"), r.Made).Denied("already-settled")
}

// reusedForAmount requests one unit more under a decided key.
func reusedForAmount(r traffic.Record) *traffic.Intent {
	m := *move(r.Intent)
	m.Amount++
	i := moveIntent(r.Client, "reuse-"+r.Key, &m)
	i.SharedKey = r.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// reusedForVoid voids a transfer under its own key.
func reusedForVoid(r traffic.Record) *traffic.Intent {
	i := voidIntent(by(r, r.Client, "reuse"), r.Made)
	i.SharedKey = r.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// offend sends, after the load, each kind of forbidden request. I-DENY checks the answers.
func offend(ctx context.Context, t *loadtest.Trial) {
	n := 0
	send := func(i *traffic.Intent) {
		t.Settle(ctx, n, i)
		n++
	}
	accounts := money.Accounts(t.Plan)
	for k := range offencesOf("", accounts[0], accounts[groups], uuid.Nil) {
		send(offencesOf(fmt.Sprintf("last-offence-%d", k), accounts[0], accounts[groups], uuid.New())[k])
	}
	records := t.History.Records()
	each := func(action traffic.Action, kinds ...attack) {
		i := slices.IndexFunc(records, func(r traffic.Record) bool {
			return r.Action == action && r.Outcome == traffic.OK && len(r.Refusals) == 0
		})
		if i < 0 {
			return
		}
		r := records[i]
		r.SharedKey, r.Key = r.IdempotencyKey(), "last-"+r.Key
		for _, kind := range kinds {
			send(kind(r))
		}
	}
	each(Pay, strangerReads, reusedForAmount, reusedForVoid, postPaid)
	each(Reserve, holdAttacks...)
	each(PostHold, endedAttacks...)
	each(VoidHold, endedAttacks...)
}
