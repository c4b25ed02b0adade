package loadtest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// lockCounters are what every flow's replicas count: by metric and kind, the names used
// as evidence.
var lockCounters = map[string]map[string]string{
	"locking_events_total": {
		"busy": "lock_busy", "timed_out": "lock_timed_out", "lost": "lock_lost", "acquired": "lock_acquired",
	},
}

// Counters add up what replicas say about themselves in /metrics, over replicas
// and over their restarts. It is evidence of what happened inside, never a verdict.
type Counters struct {
	names map[string]map[string]string // by metric and kind
	mu    sync.Mutex
	kept  map[string]int64
}

// NewCounters counts nothing yet. A flow's counters are kept beside those of all.
func NewCounters(flow map[string]map[string]string) *Counters {
	names := maps.Clone(lockCounters)
	maps.Copy(names, flow)
	return &Counters{names: names, kept: map[string]int64{}}
}

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
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := private.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s", res.Status)
	}
	return c.read(res.Body)
}

func (c *Counters) read(text io.Reader) (map[string]int64, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	counts := map[string]int64{}
	for family, names := range c.names {
		for _, metric := range families[family].GetMetric() {
			if name := names[label(metric, "kind")]; name != "" {
				counts[name] += int64(metric.GetCounter().GetValue())
			}
		}
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
