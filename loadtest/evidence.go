// SPDX-License-Identifier: MIT

package loadtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"shop/loadtest/fault"
)

// evidence collects all numbers from outside of the replicas that are not violations: of the history, the
// fault, the servers and the network traffic.
func (t *Trial) evidence(records []Record) map[string]int64 {
	evidence := fromOutside(records, t.Replicas.Len(), t.events, t.History.Epoch)
	planned := int64(len(t.Plan.Schedule)+len(records)-len(t.Plan.Intents)) + t.replayed
	evidence["sent_again"], evidence["replayed"] = evidence["attempts"]-planned, t.replayed
	evidence["samples"] = int64(len(t.Samples))
	_, done, _ := tally(t.Loaded(records))
	evidence["done"] = int64(done)
	if t.comesBack() {
		evidence["at_rest"] = int64(len(t.AtRest))
	}
	for _, e := range t.events {
		if e.Replica > 0 && !struck(records, e, t.History.Epoch) {
			continue // it hit no request
		}
		for name, n := range e.Seen {
			evidence[name] += n
		}
	}
	maps.Copy(evidence, t.Monitored)
	maps.Copy(evidence, t.pace)
	return evidence
}

// fromOutside is the evidence in the history itself.
func fromOutside(records []Record, replicas int, events []fault.Event, epoch time.Time) map[string]int64 {
	evidence := onTheWire(records)
	evidence["overlaps"] = Overlaps(records, replicas)
	evidence["cut_off"] = cutOff(records, events, epoch)
	maps.Copy(evidence, meanwhile(records, events, epoch))
	evidence["decided_after_cut"] = decidedAfterCut(records, events)
	return evidence
}

// answers are the problems that have a counter of their own.
var answers = map[string]string{"outcome-unknown": "outcome_unknown", "stale": "stale_answers", "lost": "lost_answers"}

// onTheWire counts attempts by what the clients saw.
func onTheWire(records []Record) map[string]int64 {
	evidence := map[string]int64{"attempts": 0, "unknown_answers": 0, "silent_retries": 0}
	for _, r := range records {
		for _, a := range r.Attempts {
			evidence["attempts"]++
			if a.Outcome == Unknown {
				evidence["unknown_answers"]++
			}
			if name := answers[a.Problem]; name != "" {
				evidence[name]++
			}
			evidence["silent_retries"] += int64(max(0, a.Sends-1))
		}
	}
	return evidence
}

// meanwhile counts the outcomes of the attempts that were under way while a fault lasted, and the writes that
// succeeded after the last one.
func meanwhile(records []Record, events []fault.Event, epoch time.Time) map[string]int64 {
	counts, over := map[string]int64{}, time.Duration(math.MaxInt64)
	for i, e := range events {
		if until := e.Until.Sub(epoch); i == 0 || until > over {
			over = until
		}
	}
	for _, r := range records {
		for _, a := range r.Attempts {
			done := a.Outcome == OK && !r.Reads
			if done && a.Start > over {
				counts["done_after"]++
			}
			if a.Sends == 0 || !metFault(a, events, epoch) {
				continue
			}
			counts["hit"]++
			if !a.Outcome.Final() {
				counts["disturbed"]++
			}
			if a.Outcome == Open {
				counts["refused_meanwhile"]++
			}
			if done && inside(a, events, epoch) {
				counts["done_meanwhile"]++
			}
		}
	}
	return counts
}

// inside reports whether an attempt began and ended while a fault lasted.
func inside(a Attempt, events []fault.Event, epoch time.Time) bool {
	return slices.ContainsFunc(events, func(e fault.Event) bool {
		return a.Start >= e.At.Sub(epoch) && a.End <= e.Until.Sub(epoch)
	})
}

// decidedAfterCut counts the decided keys whose COMMIT a fault had cut off or left in doubt.
func decidedAfterCut(records []Record, events []fault.Event) (n int64) {
	cut := map[string]bool{}
	for _, e := range events {
		for _, key := range e.Keys {
			cut[key] = true
		}
	}
	for _, r := range records {
		if cut[r.IdempotencyKey()] && r.Outcome.Final() {
			n++
		}
	}
	return n
}

// struck reports whether a fault of a replica hit one of its requests: for a kill, a request that got no
// answer; for a pause, a request that waited until the end of the pause or got no answer.
func struck(records []Record, e fault.Event, epoch time.Time) bool {
	at, until := e.At.Sub(epoch), e.Until.Sub(epoch)
	for _, r := range records {
		for _, a := range r.Attempts {
			if a.Replica != e.Replica-1 || a.Sends == 0 {
				continue
			}
			cut := a.Status == 0 && a.End >= at && a.Start <= until
			if cut && (e.Ends || a.Start <= at) || !e.Ends && a.Start <= at && a.End >= until {
				return true
			}
		}
	}
	return false
}

// cutOff counts the attempts that were under way during a fault and got no answer.
func cutOff(records []Record, events []fault.Event, epoch time.Time) (n int64) {
	for _, r := range records {
		for _, a := range r.Attempts {
			if a.Status == 0 && a.Sends > 0 && metFault(a, events, epoch) {
				n++
			}
		}
	}
	return n
}

func metFault(a Attempt, events []fault.Event, epoch time.Time) bool {
	for _, e := range events {
		// The client sees the end of an attempt after the kill, whose time is noted before the kill.
		if at := e.At.Sub(epoch); a.Start <= e.Until.Sub(epoch) && a.End >= at {
			return true
		}
	}
	return false
}

// Counters add up the counters in /metrics of all replicas, over their restarts. They explain what
// happened inside. No verdict depends on them: a replica can count lock requests that it never sends.
type Counters struct {
	flow *Flow
	wait time.Duration // limit for the answer of one process
	mu   sync.Mutex
	kept map[string]int64
}

// NewCounters returns empty Counters for the lock events of all replicas, and for the events that the flow
// names (Flow.Counted); a nil flow names none.
func NewCounters(of *Flow) *Counters {
	return &Counters{flow: of, wait: scrapeWait, kept: map[string]int64{}}
}

// scrapeWait is short: a replica that is about to be killed must not delay its end.
const scrapeWait = time.Second

// Keep adds the counters of the process behind addr. Call it once, right before the process ends. A
// process that does not answer adds nothing.
func (c *Counters) Keep(ctx context.Context, addr string) {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	metrics, err := scrape(ctx, addr)
	if err != nil {
		return
	}
	counts := c.read(metrics)
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range counts {
		c.kept[name] += n
	}
}

// Sum returns the counters added so far.
func (c *Counters) Sum() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.kept)
}

// scrape reads the /metrics of one process.
func scrape(ctx context.Context, addr string) (map[string]*dto.MetricFamily, error) {
	text, err := fetch(ctx, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	metrics, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	return metrics, nil
}

func (c *Counters) read(metrics map[string]*dto.MetricFamily) map[string]int64 {
	counts := map[string]int64{}
	add := func(metric, prefix string, kinds []string) {
		for _, m := range metrics[metric].GetMetric() {
			if kind := label(m, "kind"); slices.Contains(kinds, kind) {
				counts[prefix+kind] += int64(m.GetCounter().GetValue())
			}
		}
	}
	add("locking_events_total", "lock_", []string{"busy", "timed_out", "lost", "acquired"})
	if c.flow != nil {
		add(c.flow.Name+"_events_total", "", c.flow.Counted)
	}
	return counts
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// OverlapsLeast is the number of Overlaps without which a run shows nothing: two bursts of the smallest size, on
// two replicas, have as many.
const OverlapsLeast = 50

// Overlaps counts the pairs of requests with different keys that were under way for one object (a product, an
// account, a wallet) at the same time on different replicas. Only such a pair can show a lost update: requests
// with one key exclude each other by the key. Reads change nothing, and do not count. With a single address (of
// a load balancer), any two requests with different keys count.
func Overlaps(records []Record, replicas int) (pairs int64) {
	type span struct {
		*Record
		Attempt
	}
	byObject := map[string][]span{}
	for i := range records {
		r := &records[i]
		for _, a := range r.Attempts {
			if a.Sends == 0 || r.Reads {
				continue // it never reached a replica, or it changes nothing
			}
			for _, object := range r.Contends {
				byObject[object] = append(byObject[object], span{r, a})
			}
		}
	}
	for object, spans := range byObject {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.Start, b.Start) })
		var open []span
		for _, s := range spans {
			open = slices.DeleteFunc(open, func(o span) bool { return o.End <= s.Start })
			for _, o := range open {
				if o.Record != s.Record && (o.Replica != s.Replica || replicas == 1) && firstInCommon(o.Contends, s.Contends) == object {
					pairs++
				}
			}
			open = append(open, s)
		}
	}
	return pairs
}

// firstInCommon returns the first object of a that b has too: a pair that meets over two objects counts once.
func firstInCommon(a, b []string) string {
	for _, object := range a {
		if slices.Contains(b, object) {
			return object
		}
	}
	return ""
}
