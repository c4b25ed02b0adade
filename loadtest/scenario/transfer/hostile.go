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

// offenceEvery: beside so many transfers, one request is not allowed, whatever was there before.
const offenceEvery = 40

// offences are requests about the accounts of other clients, about accounts and transfers that do
// not exist, and transfers that cannot be.
func offences(random *rand.Rand, load loadtest.Load, n int, accounts []money.Account) (requests []loadtest.ScheduledRequest) {
	for i := 0; i < n; i += offenceEvery {
		own := accounts[random.IntN(clients)]
		kinds := offencesOf(fmt.Sprintf("offence-%d-%06d", load.Seed, i), own, accounts[stranger(own.Client)], loadtest.DrawID(random))
		requests = append(requests, loadtest.ScheduledRequest{At: load.At(i, n), Replica: random.IntN(load.Replicas), Intent: kinds[i/offenceEvery%len(kinds)]})
	}
	return requests
}

// offencesOf are all that the owner of an account can try, with another one's, and with an id that is
// of nothing.
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

// stranger is another client, whose account is of the same group.
func stranger(client int) int { return (client + groups) % clients }

// One in so many transfers is followed by each kind of what is not allowed, and one in so many holds.
const (
	attackEvery     = 40
	holdAttackEvery = 8
)

// followUp is what clients send because of an answer. Each transfer is read by its client, and each hold is
// settled. Some are read, posted or voided by another client; some keys are used again, for another
// amount or for another object; some holds are settled again when they are.
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

// attack is what is not allowed after an answer.
type attack func(loadtest.Record) *loadtest.Intent

// attacks are those on any transfer.
func attacks(r loadtest.Record) []attack {
	kinds := []attack{strangerReads, reusedForAmount, reusedForVoid}
	if r.Action == Pay {
		kinds = append(kinds, postPaid)
	}
	return kinds
}

// Those on a hold, and on one that was posted or voided.
var (
	holdAttacks  = []attack{strangerPosts, strangerVoids, postMore}
	endedAttacks = []attack{postAgain, voidAgain}
)

// by is a record under the name of an attack, and of a client.
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

// postMore posts more than is held.
func postMore(r loadtest.Record) *loadtest.Intent {
	return postIntent(by(r, r.Client, "more"), r.Made, move(r.Intent).Amount+1).Denied("invalid-request")
}

// postPaid posts what moved at once.
func postPaid(r loadtest.Record) *loadtest.Intent {
	return postIntent(by(r, r.Client, "paid"), r.Made, 0).Denied("already-settled")
}

// postAgain and voidAgain end a hold that was posted or voided, under a key of their own.
func postAgain(r loadtest.Record) *loadtest.Intent {
	return postIntent(by(r, r.Client, "again"), r.Made, 0).Denied("already-settled")
}

func voidAgain(r loadtest.Record) *loadtest.Intent {
	return voidIntent(by(r, r.Client, "again"), r.Made).Denied("already-settled")
}

// reusedForAmount asks for one more under a key that was decided.
func reusedForAmount(r loadtest.Record) *loadtest.Intent {
	m := *move(r.Intent)
	m.Amount++
	i := moveIntent(r.Client, "reuse-"+r.Key, &m)
	i.SharedKey = r.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// reusedForVoid voids a transfer under the key that it was made under.
func reusedForVoid(r loadtest.Record) *loadtest.Intent {
	i := voidIntent(by(r, r.Client, "reuse"), r.Made)
	i.SharedKey = r.IdempotencyKey()
	return i.Denied("idempotency-key-reused")
}

// offend sends, when the load is over, each kind of request that is not allowed. What comes of them,
// I-DENY says.
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
