// SPDX-License-Identifier: MIT

package traffic

import (
	"context"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"
)

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

// warmTime bounds how long warm waits for answers.
const warmTime = 2 * time.Second

// fewTogether requests at one time are one that is sent alone, with its duplicate: no burst.
const fewTogether = 2

// warm opens as many connections to each replica as the schedule's bursts need: requests that have to connect
// first do not arrive together. It sends GET / over each; the answers do not matter, and none is read before all
// have come, so that no connection is used twice.
func (r *Run) warm(ctx context.Context, schedule []ScheduledRequest) {
	ctx, stop := context.WithTimeout(ctx, warmTime)
	defer stop()
	var came, read sync.WaitGroup
	most := atOnce(schedule)
	maps.DeleteFunc(most, func(_, n int) bool { return n <= fewTogether })
	for _, n := range most {
		came.Add(min(n, maxConns)) // before the first of them has come
	}
	for replica, n := range most {
		for range min(n, maxConns) {
			read.Go(func() {
				req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(r.Bases[replica], "/")+"/", nil)
				var res *http.Response
				if err == nil {
					res, err = r.Recorder.Next.RoundTrip(req)
				}
				came.Done()
				if err != nil {
					return // the load will show it
				}
				came.Wait()
				_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, bodyMax))
				_ = res.Body.Close()
			})
		}
	}
	read.Wait()
}

// atOnce returns the largest number of requests to each replica that a schedule has at one time.
func atOnce(schedule []ScheduledRequest) map[int]int {
	most, now := map[int]int{}, map[int]int{}
	for i, r := range schedule {
		if i > 0 && schedule[i-1].At != r.At {
			clear(now)
		}
		now[r.Replica]++
		most[r.Replica] = max(most[r.Replica], now[r.Replica])
	}
	return most
}
