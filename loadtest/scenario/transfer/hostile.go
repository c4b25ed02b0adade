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
)

// offenceEvery: one in this many transfers comes with a forbidden or invalid request.
const offenceEvery = 40

// offences returns requests about other clients' accounts, about accounts and transfers that do
// not exist, and invalid transfers.
func offences(random *rand.Rand, load loadtest.Load, n int, accounts []money.Account) (requests []loadtest.ScheduledRequest) {
	for i := 0; i < n; i += offenceEvery {
		own := accounts[random.IntN(clients)]
		kinds := offencesOf(fmt.Sprintf("offence-%d-%06d", load.Seed, i), own, accounts[stranger(own.Client)], loadtest.DrawID(random))
		requests = append(requests, loadtest.ScheduledRequest{At: load.At(i, n), Replica: random.IntN(load.Replicas), Intent: kinds[i/offenceEvery%len(kinds)]})
	}
	return requests
}

// offencesOf returns all offences of the owner of an account, with another client's account and with
// an id that does not exist.
func offencesOf(key string, own, other money.Account, none uuid.UUID) []*loadtest.Intent {
	pay := func(from, to uuid.UUID, currency string) *loadtest.Intent {
		i := moveIntent(own.Client, key, &Move{From: from, To: to, Amount: 1})
		i.Body = loadtest.Encode(map[string]any{"from": from, "to": to, "amount": 1, "currency": currency})
		return i
	}
	about := loadtest.Record{Intent: *pay(own.ID, other.ID, currency)}
	about.Key = "of-" + key
	return []*loadtest.Intent{
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
func followUp(r loadtest.Record) []loadtest.ScheduledRequest {
	random := loadtest.RandomFor(r.Key)
	next := settle(r)
	add := func(i *loadtest.Intent) {
		next = append(next, loadtest.Soon(random, i))
	}
	ok, planned := r.Outcome == loadtest.OK, strings.HasPrefix(r.Key, "move-")
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
type attack func(loadtest.Record) *loadtest.Intent

// attacks returns the attacks on any transfer.
func attacks(r loadtest.Record) []attack {
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
func by(r loadtest.Record, client int, name string) loadtest.Record {
	r.Client, r.SharedKey, r.Key = client, "", name+"-"+r.Key
	return r
}

func strangerReads(r loadtest.Record) *loadtest.Intent {
	return readIntent(stranger(r.Client), "spy-"+r.Key, Read{Transfer: r.Made}).Denied("not-found")
}

func strangerPosts(r loadtest.Record) *loadtest.Intent {
	return postIntent(by(r, stranger(r.Client), "steal"), r.Made, 0).Denied("not-found")
}

func strangerVoids(r loadtest.Record) *loadtest.Intent {
	return voidIntent(by(r, stranger(r.Client), "steal"), r.Made).Denied("not-found")
}

// postMore posts more than the held amount.
func postMore(r loadtest.Record) *loadtest.Intent {
	return postIntent(by(r, r.Client, "more"), r.Made, move(r.Intent).Amount+1).Denied("invalid-request")
}

// postPaid posts a transfer that is not a hold.
func postPaid(r loadtest.Record) *loadtest.Intent {
	return postIntent(by(r, r.Client, "paid"), r.Made, 0).Denied("already-settled")
}

// postAgain and voidAgain end an ended hold again, under a new key.
func postAgain(r loadtest.Record) *loadtest.Intent {
	return postIntent(by(r, r.Client, "again"), r.Made, 0).Denied("already-settled")
}

func voidAgain(r loadtest.Record) *loadtest.Intent {
	return voidIntent(by(r, r.Client, "again"), r.Made).Denied("already-settled")
}

// reusedForAmount requests one unit more under a decided key.
func reusedForAmount(r loadtest.Record) *loadtest.Intent {
	m := *move(r.Intent)
	m.Amount++
	i := moveIntent(r.Client, "reuse-"+r.Key, &m)
	i.SharedKey = r.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// reusedForVoid voids a transfer under its own key.
func reusedForVoid(r loadtest.Record) *loadtest.Intent {
	i := voidIntent(by(r, r.Client, "reuse"), r.Made)
	i.SharedKey = r.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// offend sends, after the load, each kind of forbidden request. I-DENY checks the answers.
func offend(ctx context.Context, t *loadtest.Trial) {
	n := 0
	send := func(i *loadtest.Intent) {
		t.Settle(ctx, n, i)
		n++
	}
	accounts := money.Accounts(t.Plan)
	for k := range offencesOf("", accounts[0], accounts[groups], uuid.Nil) {
		send(offencesOf(fmt.Sprintf("last-offence-%d", k), accounts[0], accounts[groups], uuid.New())[k])
	}
	records := t.History.Records()
	each := func(action loadtest.Action, kinds ...attack) {
		i := slices.IndexFunc(records, func(r loadtest.Record) bool {
			return r.Action == action && r.Outcome == loadtest.OK && len(r.Refusals) == 0
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
