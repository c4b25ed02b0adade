package loadtest

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

// Intent is one thing a client wants, under one idempotency key. It is sent as
// often as it takes to learn what became of it.
type Intent struct {
	Client    int    // its sender: a place among the credentials
	Key       string // names it in the history
	SharedKey string // the idempotency key that it is sent under, if that is another one: two intents may share it
	Action    Action
	Method    string
	Path      string
	Body      []byte
	Contends  []string // what it has to be alone with: products, accounts, wallets
	Of        any      // what is asked for, in a type of the flow
	Ends      bool     // it ends what was begun by another one: its success does not show that something new can begin
	Reads     bool     // it changes nothing: each answer stands for its own moment, and two may differ
	Refusals  []string // it is not allowed: it must end in one of these problems, and have no effect; none: it is allowed
	GivesUp   bool     // it is not sent again after an answer that it did nothing: it stays open, and must have no effect
}

// Action is what a request asks for, in a word of the flow.
type Action string

// IdempotencyKey is the key that it is sent under.
func (i Intent) IdempotencyKey() string { return cmp.Or(i.SharedKey, i.Key) }

// Load is what a plan is made from. The same Load gives the same plan, so that
// two strategies are asked exactly the same at the same moments.
type Load struct {
	Rate     int // intents per second
	Duration time.Duration
	Seed     int64
	Replicas int
}

// At is the moment of the i-th of n. (Duration times i, in integers, overflows
// within a day.)
func (l Load) At(i, n int) time.Duration {
	return time.Duration(float64(i) / float64(n) * float64(l.Duration))
}

// Between draws a moment from that of the i-th of n up to the next one.
func (l Load) Between(random *rand.Rand, i, n int) time.Duration {
	return l.At(i, n) + DrawTime(random, l.Duration/time.Duration(n))
}

// ScheduledRequest is one request of a plan.
type ScheduledRequest struct {
	At      time.Duration
	Replica int
	Intent  *Intent
}

// Plan is everything that will be sent, by whom, and what is there before.
type Plan struct {
	Clients  int // how many send it
	Given    any // what is there before the first request, in a type of the flow
	Intents  []*Intent
	Schedule []ScheduledRequest // in order of At; one intent in DuplicateEvery has two at the same moment
}

// One intent in so many is sent twice at the same moment to two replicas, is not sent again
// after an answer that it did nothing, and has the key of another client's intent.
const (
	DuplicateEvery = 10
	GiveUpEvery    = 20
	SameKeyEvery   = 50
)

// Add plans to send an intent to a replica, and one in DuplicateEvery to another one too.
func (p *Plan) Add(random *rand.Rand, replicas int, r ScheduledRequest) {
	p.Schedule = append(p.Schedule, r)
	if len(p.Intents)%DuplicateEvery == 0 {
		p.Schedule = append(p.Schedule, ScheduledRequest{r.At, OtherReplica(random, r.Replica, replicas), r.Intent})
	}
	p.Intents = append(p.Intents, r.Intent)
}

// AddBeside plans what is sent beside the load: reads, and requests that are not allowed.
// They come in any order, and none of them is sent twice.
func (p *Plan) AddBeside(requests ...ScheduledRequest) {
	for _, r := range requests {
		p.Schedule = append(p.Schedule, r)
		p.Intents = append(p.Intents, r.Intent)
	}
	slices.SortStableFunc(p.Schedule, func(a, b ScheduledRequest) int { return cmp.Compare(a.At, b.At) })
}

// Load are the intents without those beside them.
func (p Plan) Load() []*Intent {
	return slices.DeleteFunc(slices.Clone(p.Intents), func(i *Intent) bool { return i.Reads || len(i.Refusals) > 0 })
}

// Denied is the intent as one that is not allowed: it must end in one of these problems, and
// have no effect. It contends with nothing.
func (i Intent) Denied(problems ...string) *Intent {
	i.Refusals, i.Contends, i.GivesUp = problems, nil, false
	return &i
}

// RandomFor draws what follows an answer to a key: the same for the same key.
func RandomFor(key string) *rand.Rand {
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(key))
	return rand.New(rand.NewPCG(sum.Sum64(), 0))
}

// soon is how long a client takes until it sends what follows an answer, at most.
const soon = 50 * time.Millisecond

// Soon is what a client sends because of an answer, to any replica.
func Soon(random *rand.Rand, i *Intent) ScheduledRequest {
	return ScheduledRequest{At: DrawTime(random, soon), Replica: random.IntN(1 << 10), Intent: i}
}

// OtherReplica is another one than this, if there is one.
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

// Encode is for bodies that can be nothing but valid.
func Encode(body any) []byte {
	text, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return text
}
