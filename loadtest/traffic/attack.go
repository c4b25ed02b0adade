// SPDX-License-Identifier: MIT

package traffic

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// Attack sends each request of a schedule to the bases (replica number → URL) at its time after begin,
// whether or not earlier requests have been answered: an open loop, like real buyers. It returns vegeta's
// own results, one for each request of the schedule and none for retries, without the bodies and headers
// of the answers. The History has those.
//
// Each call uses a new Attacker: a second attack on the same one sends next to nothing, without an error.
func Attack(ctx context.Context, client *http.Client, bases []string, headers Headers, begin time.Time, schedule []ScheduledRequest) (results vegeta.Results) {
	attacker := vegeta.NewAttacker(vegeta.Client(client))
	stop := context.AfterFunc(ctx, func() { attacker.Stop() })
	defer stop()
	for result := range attacker.Attack(targeter(ctx, bases, headers, schedule), pacer{begin, schedule}, 0, "") {
		result.Body, result.Headers = nil, nil
		if u, err := url.Parse(result.URL); err == nil {
			result.URL = u.Redacted()
		}
		results.Add(result)
	}
	results.Close()
	return results
}

// targeter returns the requests in order. It must do next to nothing: vegeta counts its time as latency.
func targeter(ctx context.Context, bases []string, headers Headers, schedule []ScheduledRequest) vegeta.Targeter {
	var next atomic.Int64
	return func(t *vegeta.Target) error {
		if err := ctx.Err(); err != nil {
			return err // vegeta may still use a tick for which it was waiting
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

// Headers are the headers of requests: those of the client, and the idempotency key. (The name of the
// intent is added for the Recorder, which removes it.)
type Headers struct {
	Key     string        // name of the header with the idempotency key
	Clients []http.Header // by Intent.Client
}

func (h Headers) of(i Intent) http.Header {
	header := h.Clients[i.Client].Clone()
	header.Set(h.Key, i.IdempotencyKey())
	header.Set(historyKey, i.Key)
	return header
}

// pacer waits for the time of the next request. A duplicate has the same time, so vegeta sends it at once,
// on another worker.
type pacer struct {
	begin    time.Time
	schedule []ScheduledRequest
}

func (p pacer) Pace(_ time.Duration, hits uint64) (time.Duration, bool) {
	if hits >= uint64(len(p.schedule)) {
		return 0, true
	}
	return max(0, time.Until(p.begin.Add(p.schedule[hits].At))), false
}

// Rate is for vegeta's own plots only.
func (p pacer) Rate(time.Duration) float64 {
	n := len(p.schedule)
	if n == 0 || p.schedule[n-1].At == 0 {
		return 0
	}
	return float64(n) / p.schedule[n-1].At.Seconds()
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
