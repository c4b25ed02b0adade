// SPDX-License-Identifier: MIT

package traffic

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Intent is one thing that a client wants, under one idempotency key. It is sent until its outcome is
// known.
type Intent struct {
	Client    int    // its sender, as an index of the credentials
	Key       string // its name in the history
	SharedKey string // the idempotency key, if it is not Key: two intents may share one
	Action    Action
	Method    string
	Path      string
	Body      []byte
	Contends  []string // the objects to which it needs exclusive access: products, accounts, wallets
	Of        any      // what is requested, in a type of the flow
	Ends      bool     // it ends what another intent began: its success does not show that something new can begin
	Reads     bool     // it changes nothing: each answer shows the state of its own moment, and two may differ
	Refusals  []string // it is not allowed: it must be refused with one of these problems and have no effect; none: it is allowed
	GivesUp   bool     // it is not retried after an answer that nothing was done: it stays open, and must have no effect
}

// Action is the kind of a request, named by the flow.
type Action string

// IdempotencyKey returns the key under which the intent is sent.
func (i Intent) IdempotencyKey() string { return cmp.Or(i.SharedKey, i.Key) }

// Load is what a plan is made from. The same Load gives the same plan: two strategies get the same
// requests at the same times.
type Load struct {
	Rate     int // intents per second
	Duration time.Duration
	Seed     int64
	Replicas int
}

// At returns the time of the i-th of n intents. (Duration times i, as integers, would overflow within a
// day of load.)
func (l Load) At(i, n int) time.Duration {
	return time.Duration(float64(i) / float64(n) * float64(l.Duration))
}

// Between draws a time between those of the i-th of n intents and the next one.
func (l Load) Between(random *rand.Rand, i, n int) time.Duration {
	return l.At(i, n) + DrawTime(random, l.Duration/time.Duration(n))
}

// ScheduledRequest is one request of a plan.
type ScheduledRequest struct {
	At      time.Duration
	Replica int
	Intent  *Intent
}

// Plan is everything that will be sent, and what exists before.
type Plan struct {
	Clients  int // how many clients send it
	Given    any // what exists before the first request, in a type of the flow
	Intents  []*Intent
	Schedule []ScheduledRequest // in order of At; one intent in DuplicateEvery has two requests at the same time
}

// One intent in this many has a property.
const (
	DuplicateEvery = 10 // it is sent twice at the same time, to two replicas
	GiveUpEvery    = 20 // it is not retried after an answer that nothing was done
	SameKeyEvery   = 50 // it has the key of another client's intent
)

// Add plans an intent with its request, and a duplicate to another replica for one in DuplicateEvery.
func (p *Plan) Add(random *rand.Rand, replicas int, r ScheduledRequest) {
	p.Schedule = append(p.Schedule, r)
	if len(p.Intents)%DuplicateEvery == 0 {
		p.Schedule = append(p.Schedule, ScheduledRequest{r.At, OtherReplica(random, r.Replica, replicas), r.Intent})
	}
	p.Intents = append(p.Intents, r.Intent)
}

// SameKey returns the intent of another client whose key the next intent has; nil for most. By turns it is the
// intent before, which is under way, and one that is over.
func (p *Plan) SameKey() *Intent {
	i := len(p.Intents)
	switch {
	case i%SameKeyEvery != 1:
		return nil
	case i/SameKeyEvery%2 == 0:
		return p.Intents[i-1]
	}
	return p.Intents[i-i/2]
}

// AddBeside plans reads, and requests that are not allowed. They may be in any order, and are not
// duplicated.
func (p *Plan) AddBeside(requests ...ScheduledRequest) {
	for _, r := range requests {
		p.Schedule = append(p.Schedule, r)
		p.Intents = append(p.Intents, r.Intent)
	}
	slices.SortStableFunc(p.Schedule, func(a, b ScheduledRequest) int { return cmp.Compare(a.At, b.At) })
}

// Load returns the intents without those of AddBeside.
func (p Plan) Load() []*Intent {
	return slices.DeleteFunc(slices.Clone(p.Intents), func(i *Intent) bool { return i.Reads || len(i.Refusals) > 0 })
}

// Denied returns the intent as one that is not allowed: it must be refused with one of these problems, and
// have no effect. It contends for nothing.
func (i Intent) Denied(problems ...string) *Intent {
	i.Refusals, i.Contends, i.GivesUp = problems, nil, false
	return &i
}

// RandomFor returns the random source for what follows an answer to a key. It is the same for the same key.
func RandomFor(key string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key))
	return rand.New(rand.NewPCG(sum.Sum64(), 0))
}

// soon bounds how long after an answer a client sends what follows it.
const soon = 50 * time.Millisecond

// Soon schedules what a client sends because of an answer, to any replica.
func Soon(random *rand.Rand, i *Intent) ScheduledRequest {
	return ScheduledRequest{At: DrawTime(random, soon), Replica: random.IntN(1 << 10), Intent: i}
}

// The number of intents of a burst.
const (
	burstLeast = 10
	burstMost  = 50
)

// Slot is when an intent is sent, and to which replica.
type Slot struct {
	At      time.Duration
	Replica int
	Burst   int // the number of its burst, from 1; 0: it is sent alone
}

// Slots draws the slots of n intents, in order of time. Half of them come in bursts: 10 to 50 intents
// are sent at the same time, over all replicas in turn, and should be for one object (see Uneven). Requests
// that come one by one hardly meet, and a service that loses updates then looks correct. The other half is
// spread evenly, so that a fault at any time meets a request.
func (l Load) Slots(random *rand.Rand, n int) []Slot {
	slots := make([]Slot, 0, n)
	for burst := 1; len(slots) < n; burst++ {
		from := len(slots)
		size := burstLeast + random.IntN(burstMost-burstLeast+1)
		if rest := n - from; rest < 2*size+2*burstLeast { // what is left would be no burst
			size = (rest + 1) / 2
		}
		first := random.IntN(l.Replicas)
		for i := range size {
			slots = append(slots, Slot{l.At(from, n), (first + i) % l.Replicas, burst})
		}
		for i := range min(size, n-len(slots)) {
			slots = append(slots, Slot{At: l.At(from+2*i+1, n), Replica: random.IntN(l.Replicas)})
		}
	}
	return slots
}

// Uneven draws one of n objects. The first is twice as frequent as the second, three times as frequent as the
// third, and so on: one is hot, and each is drawn at times.
func Uneven(random *rand.Rand, n int) int {
	all := 0.0
	for i := range n {
		all += 1 / float64(i+1)
	}
	at := random.Float64() * all
	for i := range n - 1 {
		if at -= 1 / float64(i+1); at < 0 {
			return i
		}
	}
	return max(0, n-1)
}

// OtherReplica draws another replica, if there is one.
func OtherReplica(random *rand.Rand, replica, replicas int) int {
	return (replica + 1 + random.IntN(max(1, replicas-1))) % replicas
}

// DrawTime draws a time from 0 up to a bound.
func DrawTime(random *rand.Rand, bound time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(max(1, bound))))
}

// DrawID draws a UUID of version 4.
func DrawID(random *rand.Rand) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], random.Uint64())
	binary.BigEndian.PutUint64(id[8:], random.Uint64())
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}

// Encode encodes a body that is always valid JSON. It panics if it is not.
func Encode(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}
