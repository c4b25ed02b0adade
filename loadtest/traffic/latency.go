// SPDX-License-Identifier: MIT

package traffic

import (
	"fmt"
	"slices"
	"time"
)

// Latency is how long the keys of a load took, measured from the planned start of each key, not from the
// sending of its request: the time during which a generator waits for a slow service would otherwise be
// left out (coordinated omission).
type Latency struct {
	Decided     Percentiles `json:"decided"`      // of writes, to the answer that decided the key, retries included
	FirstAnswer Percentiles `json:"first_answer"` // of writes, to the first answer, whatever it says
	Reads       Percentiles `json:"reads"`        // of reads, to the answer that decided the key
	Lag         Percentiles `json:"lag"`          // of the generator: of all keys, to the actual start of the first request
}

// Percentiles are those of N durations, in milliseconds. Each is a measured duration (nearest rank), not
// an estimate.
type Percentiles struct {
	N    int     `json:"n"`
	P50  float64 `json:"p50_ms"`
	P90  float64 `json:"p90_ms"`
	P99  float64 `json:"p99_ms"`
	P999 float64 `json:"p999_ms"`
	Max  float64 `json:"max_ms"`
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentiles sorts the durations.
func percentiles(all []time.Duration) Percentiles {
	slices.Sort(all)
	n := len(all)
	if n == 0 {
		return Percentiles{}
	}
	at := func(permille int) float64 { return milliseconds(all[(n*permille+999)/1000-1]) }
	return Percentiles{N: n, P50: at(500), P90: at(900), P99: at(990), P999: at(999), Max: at(1000)}
}

// LatencyOf measures the keys of a load that ended at end. A key that was not decided by then counts with
// the time until end, the least that it can have taken. An abandoned key counts in FirstAnswer only.
func LatencyOf(records []Record, end time.Duration) Latency {
	var decided, answered, reads, lag []time.Duration
	for _, r := range records {
		if started, was := r.started(); was {
			lag = append(lag, started-r.Planned)
		}
		took := r.DecidedAt(end) - r.Planned
		switch {
		case r.Reads:
			reads = append(reads, took)
		case !r.Abandoned():
			decided = append(decided, took)
		}
		if first, was := r.firstAnswer(); was && !r.Reads {
			answered = append(answered, first-r.Planned)
		}
	}
	return Latency{Decided: percentiles(decided), FirstAnswer: percentiles(answered), Reads: percentiles(reads), Lag: percentiles(lag)}
}

// started returns when the first attempt of a key began, if there was one.
func (r Record) started() (at time.Duration, was bool) {
	for _, a := range r.Attempts {
		if !was || a.Start < at {
			at, was = a.Start, true
		}
	}
	return at, was
}

// firstAnswer returns when the first answer was received, if there was one.
func (r Record) firstAnswer() (at time.Duration, was bool) {
	return r.earliest(func(a Attempt) bool { return a.Status != 0 })
}

// DecidedAt returns when the first final answer was received; end if none was.
func (r Record) DecidedAt(end time.Duration) time.Duration {
	at, was := r.earliest(func(a Attempt) bool { return a.Outcome.Final() })
	if !was {
		return end
	}
	return at
}

// earliest returns the earliest end of the attempts that count.
func (r Record) earliest(counts func(Attempt) bool) (at time.Duration, was bool) {
	for _, a := range r.Attempts {
		if counts(a) && (!was || a.End < at) {
			at, was = a.End, true
		}
	}
	return at, was
}

// LagBound limits the 99th percentile of the generator's lag. Beyond it, the service did not get the load
// of the plan: a fault of a few seconds would hit other requests than planned. The bound is eight times
// the most that was measured on two cores: the p99 was 1 to 3 ms with nothing else running, and 122 ms at a
// load average of 20.
const LagBound = time.Second

// Lagging returns a reason for an inconclusive run if the generator lagged.
func Lagging(lag Percentiles) []string {
	if lag.P99 <= milliseconds(LagBound) {
		return nil
	}
	return []string{fmt.Sprintf("the generator lagged: one request in a hundred was sent %.0f ms or more after its planned start; the bound is %.0f ms", lag.P99, milliseconds(LagBound))}
}
