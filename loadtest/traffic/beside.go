// SPDX-License-Identifier: MIT

package traffic

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
)

// Spread schedules requests beside a load: one for each every of n intents, at a random time. draw returns the k-th.
func (l Load) Spread(random *rand.Rand, name string, n, every int, draw func(k int, key string) *Intent) (requests []ScheduledRequest) {
	for i := 0; i < n; i += every {
		at, replica := l.Between(random, i, n), random.IntN(l.Replicas)
		requests = append(requests, ScheduledRequest{at, replica, draw(i/every, fmt.Sprintf("%s-%d-%06d", name, l.Seed, i))})
	}
	return requests
}

// KeyReused is the problem of a request whose key another one has.
const KeyReused = "idempotency-key-reused"

// Reusing returns the intent under the key of a decided one, as one that is not allowed.
func (i Intent) Reusing(r Record) *Intent {
	i.SharedKey = r.IdempotencyKey()
	return i.Denied(KeyReused)
}

// Forbidden returns a request that follows an answer and is not allowed.
type Forbidden func(Record) *Intent

// OneOf schedules one of some attacks, each after one in every answers.
func OneOf(random *rand.Rand, every int, r Record, attacks ...Forbidden) (next []ScheduledRequest) {
	if kind := random.IntN(every); kind < len(attacks) {
		next = append(next, Soon(random, attacks[kind](r)))
	}
	return next
}

// Offend sends requests that are not allowed, one after the other: some intents, each with a key of its own, and each
// attack on the first success of an action.
func (r *Run) Offend(ctx context.Context, intents []*Intent, attacks map[Action][]Forbidden) {
	for k, i := range intents {
		i.Key = fmt.Sprintf("last-offence-%d", k)
	}
	records := r.History.Records()
	for _, action := range slices.Sorted(maps.Keys(attacks)) {
		i := slices.IndexFunc(records, func(r Record) bool { return r.Action == action && r.Outcome == OK && len(r.Refusals) == 0 })
		if i < 0 {
			continue
		}
		records[i].SharedKey, records[i].Key = records[i].IdempotencyKey(), "last-"+records[i].Key
		for _, attack := range attacks[action] {
			intents = append(intents, attack(records[i]))
		}
	}
	for n, i := range intents {
		r.Settle(ctx, n, i)
	}
}
