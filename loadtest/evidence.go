package loadtest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"shop/loadtest/fault"
)

// evidence is every number that is no verdict.
func (t *Trial) evidence(records []Record) map[string]int64 {
	evidence := maps.Clone(t.Replicas.Counters.Sum())
	maps.Copy(evidence, fromOutside(records, t.Replicas.Len(), t.events, t.History.Epoch))
	planned := int64(len(t.Plan.Schedule)+len(records)-len(t.Plan.Intents)) + t.replayed
	evidence["sent_again"], evidence["replayed"] = evidence["attempts"]-planned, t.replayed
	evidence["samples"] = int64(len(t.Samples))
	for _, e := range t.events {
		for name, n := range e.Seen {
			evidence[name] += n
		}
	}
	if t.Scenario.Fault == NoFault {
		evidence["rightful_refused"] = evidence["fence_refused"] // no holder was late: each had a right
	}
	if t.Scenario.Flow.spec(t.Scenario.Fault).Outage {
		evidence["lock_acquired_after"] = evidence["lock_acquired"] - t.acquired
	}
	return evidence
}

// fromOutside is the evidence that the history itself holds.
func fromOutside(records []Record, replicas int, events []fault.Event, epoch time.Time) map[string]int64 {
	evidence := onTheWire(records)
	evidence["overlaps"] = Overlaps(records, replicas)
	evidence["cut_off"] = cutOff(records, events, epoch)
	return evidence
}

// onTheWire counts attempts.
func onTheWire(records []Record) map[string]int64 {
	evidence := map[string]int64{"attempts": 0, "unknown_answers": 0, "silent_retries": 0}
	for _, r := range records {
		for _, a := range r.Attempts {
			evidence["attempts"]++
			if a.Outcome == Unknown {
				evidence["unknown_answers"]++
			}
			if a.Problem == "outcome-unknown" {
				evidence["outcome_unknown"]++
			}
			evidence["silent_retries"] += int64(max(0, a.Sends-1))
		}
	}
	return evidence
}

// cutOff counts the attempts that were under way at the moment of a fault and
// got no answer.
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
		// The end is seen a moment after the kill, and the kill is noted a moment before.
		if at := e.At.Sub(epoch); a.Start <= e.Until.Sub(epoch) && a.End >= at {
			return true
		}
	}
	return false
}

// Peek sums what all replicas have counted up to now, those that were killed included.
func (rs *Replicas) Peek(ctx context.Context) map[string]int64 {
	sum := rs.Counters.Sum()
	for _, r := range rs.all {
		counts, err := rs.Counters.scrape(ctx, r.metrics)
		if err != nil {
			continue // it is down at the moment
		}
		for name, n := range counts {
			sum[name] += n
		}
	}
	return sum
}

// Counters add up what replicas say about themselves in /metrics, over replicas
// and over their restarts. It is evidence of what happened inside, never a verdict.
type Counters struct {
	flow *Flow
	mu   sync.Mutex
	kept map[string]int64
}

// NewCounters counts nothing yet. What a flow counts is kept beside what all replicas
// count of their locks.
func NewCounters(of *Flow) *Counters { return &Counters{flow: of, kept: map[string]int64{}} }

// scrapeWait is short: a replica that is about to be killed must not delay its end.
const scrapeWait = time.Second

// Keep adds what the process behind addr has counted in its life. Call it once,
// right before the process ends. Of a process that does not answer nothing is added.
func (c *Counters) Keep(ctx context.Context, addr string) {
	counts, err := c.scrape(ctx, addr)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range counts {
		c.kept[name] += n
	}
}

// Sum is what has been kept.
func (c *Counters) Sum() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.kept)
}

// scrape reads the counters of one process.
func (c *Counters) scrape(ctx context.Context, addr string) (map[string]int64, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWait)
	defer cancel()
	text, err := fetch(ctx, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	return c.read(bytes.NewReader(text))
}

func (c *Counters) read(text io.Reader) (map[string]int64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	counts := map[string]int64{}
	add := func(metric, prefix string, kinds []string) {
		for _, m := range families[metric].GetMetric() {
			if kind := label(m, "kind"); slices.Contains(kinds, kind) {
				counts[prefix+kind] += int64(m.GetCounter().GetValue())
			}
		}
	}
	add("locking_events_total", "lock_", []string{"busy", "timed_out", "lost", "acquired"})
	if c.flow != nil {
		add(c.flow.Name+"_events_total", "", c.flow.Counted)
	}
	return counts, nil
}

func label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}

// Overlaps counts the attempts that were under way for a product or an
// account while another replica was busy with an attempt for the same one. A run without any
// shows nothing: the requests might as well have come one by one. With a single
// replica in view (a load balancer's address), any two attempts count.
func Overlaps(records []Record, replicas int) int64 {
	type span struct {
		attempt int // an attempt for two counts once
		replica int
		start   time.Duration
		end     time.Duration
	}
	byName := map[string][]span{}
	n := 0
	for _, r := range records {
		for _, a := range r.Attempts {
			n++
			if a.Sends == 0 {
				continue // it never got to a replica
			}
			for _, name := range r.Contends {
				byName[name] = append(byName[name], span{n, a.Replica, a.Start, a.End})
			}
		}
	}
	met := map[int]bool{}
	for _, spans := range byName {
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
		var open []span
		for _, s := range spans {
			open = slices.DeleteFunc(open, func(o span) bool { return o.end <= s.start })
			for _, o := range open {
				if o.replica != s.replica || replicas == 1 {
					met[o.attempt], met[s.attempt] = true, true
				}
			}
			open = append(open, s)
		}
	}
	return int64(len(met))
}
