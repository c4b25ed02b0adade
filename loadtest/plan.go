package loadtest

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
)

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

// DuplicateEvery: one intent in so many is sent twice at the same moment, to two replicas.
const DuplicateEvery = 10

// OtherReplica is another one than this, if there is one.
func OtherReplica(random *rand.Rand, replica, replicas int) int {
	return (replica + 1 + random.IntN(max(1, replicas-1))) % replicas
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
