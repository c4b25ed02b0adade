package loadtest

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Attack sends the requests of a schedule to the bases (replica number → URL) at their
// moments, whatever becomes of those before: an open loop, as real buyers are.
// It returns the latencies as vegeta saw them, waiting for a connection included.
//
// An Attacker is good for one attack: a second one on it sends next to nothing,
// without an error. So there is a new one in each call.
func Attack(ctx context.Context, client *http.Client, bases []string, headers Headers, schedule []ScheduledRequest) vegeta.Metrics {
	attacker := vegeta.NewAttacker(vegeta.Client(client))
	stop := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer stop()
	var metrics vegeta.Metrics
	for result := range attacker.Attack(targeter(ctx, bases, headers, schedule), pacer(schedule), 0, "") {
		metrics.Add(result)
	}
	metrics.Close()
	return metrics
}

// targeter hands the requests out in order. It must do next to nothing: its time
// is counted as latency.
func targeter(ctx context.Context, bases []string, headers Headers, schedule []ScheduledRequest) vegeta.Targeter {
	var next atomic.Int64
	return func(t *vegeta.Target) error {
		if err := ctx.Err(); err != nil {
			return err // vegeta may still take a tick for which it was waiting
		}
		i := int(next.Add(1)) - 1
		if i >= len(schedule) {
			return errors.New("loadtest: no request is left") // the pacer stops before
		}
		request := schedule[i]
		t.Method, t.Body = request.Intent.Method, request.Intent.Body
		t.URL = strings.TrimSuffix(bases[request.Replica], "/") + request.Intent.Path
		t.Header = headers.of(*request.Intent)
		return nil
	}
}

// Headers are what requests carry: the sender's own, and the idempotency key
// under the name that the service knows it by. (And for the Recorder, which takes
// it out, the name of the intent.)
type Headers struct {
	Key     string
	Clients []http.Header // by Intent.Client
}

func (h Headers) of(i Intent) http.Header {
	header := h.Clients[i.Client].Clone()
	header.Set(h.Key, i.IdempotencyKey())
	header.Set(historyKey, i.Key)
	return header
}

// pacer waits for the moment of the next request. Duplicates have the same moment, so
// the second is sent at once, on a worker of its own.
type pacer []ScheduledRequest

func (p pacer) Pace(elapsed time.Duration, hits uint64) (time.Duration, bool) {
	if hits >= uint64(len(p)) {
		return 0, true
	}
	return max(0, p[hits].At-elapsed), false
}

// Rate is for vegeta's own plots only.
func (p pacer) Rate(time.Duration) float64 {
	if len(p) == 0 || p[len(p)-1].At == 0 {
		return 0
	}
	return float64(len(p)) / p[len(p)-1].At.Seconds()
}
