// SPDX-License-Identifier: MIT

package transfer

import (
	"strings"

	"github.com/google/uuid"

	"shop/loadtest/scenario/money"
	"shop/loadtest/traffic"
)

// One in offenceEvery transfers comes with an offence. Each kind of attack follows one in attackEvery transfers, and of
// those that only a hold has one in holdAttackEvery holds.
const (
	offenceEvery    = 40
	attackEvery     = 40
	holdAttackEvery = 8
)

// offences returns requests of the owner of an account: about another client's account, about accounts and transfers that
// do not exist, and invalid transfers. They have one key.
func offences(key string, own, other money.Account, none uuid.UUID) []*traffic.Intent {
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
		endIntent(about, PostHold, none, 0).Denied("not-found"),
		endIntent(about, VoidHold, none, 0).Denied("not-found"),
		pay(own.ID, own.ID, currency).Denied("invalid-request"),
		pay(own.ID, other.ID, "USD").Denied("invalid-request"),
	}
}

// stranger returns another client whose account is of the same group.
func stranger(client int) int { return (client + groups) % clients }

// attacks are the requests that are not allowed after a payment, a hold, or the end of a hold.
var attacks = map[traffic.Action][]traffic.Forbidden{
	Pay:      {strangerReads, reusedForAmount, reusedForVoid, again("paid", PostHold)},
	Reserve:  {strangerEnds(PostHold), strangerEnds(VoidHold), postMore},
	PostHold: {again("again", PostHold), again("again", VoidHold)},
	VoidHold: {again("again", PostHold), again("again", VoidHold)},
}

// followUp returns the requests that an answer leads to. The client reads each transfer, and settles
// each hold. Some are attacked.
func followUp(r traffic.Record) []traffic.ScheduledRequest {
	random := traffic.RandomFor(r.Key)
	next := settle(r)
	ok, planned := r.Outcome == traffic.OK, strings.HasPrefix(r.Key, "move-")
	ended := len(r.Refusals) == 0 && (r.Action == PostHold || r.Action == VoidHold)
	if ok && (planned || ended) {
		next = append(next, traffic.Soon(random, readIntent(r.Client, "read-"+r.Key, Read{Transfer: r.Made})))
	}
	some := func(every int, attacks ...traffic.Forbidden) {
		next = append(next, traffic.OneOf(random, every, r, attacks...)...)
	}
	switch {
	case planned && ok && r.Action == Pay:
		some(attackEvery, attacks[Pay]...)
	case planned && ok:
		some(attackEvery, strangerReads, reusedForAmount, reusedForVoid)
		some(holdAttackEvery, attacks[Reserve]...)
	case planned && r.Refused(money.Short):
		some(attackEvery, reusedForAmount)
	case ok && ended:
		some(holdAttackEvery, attacks[r.Action]...)
	}
	return next
}

func strangerReads(r traffic.Record) *traffic.Intent {
	return readIntent(stranger(r.Client), "spy-"+r.Key, Read{Transfer: r.Made}).Denied("not-found")
}

// strangerEnds returns an attack of another client that posts or voids a hold.
func strangerEnds(action traffic.Action) traffic.Forbidden {
	return func(r traffic.Record) *traffic.Intent {
		return endIntent(by(r, stranger(r.Client), "steal"), action, r.Made, 0).Denied("not-found")
	}
}

// again returns an attack that posts or voids, under a new key, what is not reserved.
func again(name string, action traffic.Action) traffic.Forbidden {
	return func(r traffic.Record) *traffic.Intent {
		return endIntent(by(r, r.Client, name), action, r.Made, 0).Denied("already-settled")
	}
}

// by returns a record with the client and the key of an attack.
func by(r traffic.Record, client int, name string) traffic.Record {
	r.Client, r.SharedKey, r.Key = client, "", name+"-"+r.Key
	return r
}

// postMore posts more than the held amount.
func postMore(r traffic.Record) *traffic.Intent {
	return endIntent(by(r, r.Client, "more"), PostHold, r.Made, move(r.Intent).Amount+1).Denied("invalid-request")
}

// reusedForAmount requests one unit more under a decided key.
func reusedForAmount(r traffic.Record) *traffic.Intent {
	m := *move(r.Intent)
	m.Amount++
	return moveIntent(r.Client, "reuse-"+r.Key, &m).Reusing(r)
}

// reusedForVoid voids a transfer under its own key.
func reusedForVoid(r traffic.Record) *traffic.Intent {
	return endIntent(by(r, r.Client, "reuse"), VoidHold, r.Made, 0).Reusing(r)
}
