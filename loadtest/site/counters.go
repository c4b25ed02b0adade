// SPDX-License-Identifier: MIT

package site

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"shop/loadtest/traffic"
)

// Counters add up the counters in /metrics of all replicas, over their restarts. They explain what
// happened inside. No verdict depends on them: a replica can count lock requests that it never sends.
type Counters struct {
	flow    string        // the prefix of its events
	counted []string      // its events
	wait    time.Duration // limit for the answer of one process
	mu      sync.Mutex
	kept    map[string]int64
}

// NewCounters returns empty Counters for the lock events of all replicas, and for some events of a flow.
func NewCounters(flow string, events ...string) *Counters {
	return &Counters{flow: flow, counted: events, wait: scrapeWait, kept: map[string]int64{}}
}

// scrapeWait is short: a replica that is about to be killed must not delay its end.
const scrapeWait = time.Second

// Keep adds the counters of the process behind addr. Call it once, right before the process ends. A
// process that does not answer adds nothing.
func (c *Counters) Keep(ctx context.Context, addr string) {
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	metrics, err := Scrape(ctx, addr)
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

// Scrape reads the /metrics of one process.
func Scrape(ctx context.Context, addr string) (map[string]*dto.MetricFamily, error) {
	text, err := traffic.Fetch(ctx, "http://"+addr+"/metrics", nil)
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
			if kind := Label(m, "kind"); slices.Contains(kinds, kind) {
				counts[prefix+kind] += int64(m.GetCounter().GetValue())
			}
		}
	}
	add("locking_events_total", "lock_", []string{"busy", "timed_out", "lost", "acquired"})
	add(c.flow+"_events_total", "", c.counted)
	return counts
}

// Label returns the value of a label; "" if the metric has none.
func Label(metric *dto.Metric, name string) string {
	for _, pair := range metric.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
