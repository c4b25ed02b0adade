package loadtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/loadtest/fault"
)

// Run is one plan, sent to some replicas until every key is decided.
type Run struct {
	History *History

	bases    []string
	headers  Headers
	recorder *Recorder
	client   *http.Client
	retrier  *Retrier
	retrying context.Context // ends with the retrier's patience
	end      context.CancelFunc
	followUp func(Record) []ScheduledRequest // what an answer gives rise to; may be nil
}

// maxConns to each replica: more than are ever needed at once, so that no request
// waits for one; bounded, so that a stalled replica does not eat all ports.
const (
	maxConns      = 64
	clientTimeout = 10 * time.Second
	patience      = 20 * time.Second // of the retrier, after the last scheduled request
)

// NewRun sends nothing yet. Undecided keys are retried until retryFor is over.
func NewRun(ctx context.Context, bases []string, headers Headers, retryFor time.Duration,
	classify func(int, http.Header, []byte) (Outcome, string),
) (*Run, error) {
	numbers := map[string]int{}
	for n, base := range bases {
		u, err := url.Parse(base)
		if err != nil {
			return nil, errors.New("not the URL of a service (not shown, since it may hold a password): want http://127.0.0.1:8080")
		}
		numbers[u.Host] = n
	}
	r := &Run{bases: bases, headers: headers, History: NewHistory()}
	r.retrying, r.end = context.WithTimeout(ctx, retryFor)
	r.recorder = &Recorder{History: r.History, Header: headers.Key, Replicas: numbers, Classify: classify}
	r.client = r.recorder.Client(maxConns, clientTimeout)
	r.retrier = NewRetrier(r.client, bases, headers, r.History)
	r.recorder.Undecided = func(record *Record) { r.retrier.Retry(r.retrying, record) }
	r.recorder.Decided = func(record Record) {
		if r.followUp != nil {
			r.retrier.FollowUp(r.retrying, r.followUp(record))
		}
	}
	return r, nil
}

// Send sends the schedule, and returns when every key is decided or patience ends.
func (r *Run) Send(ctx context.Context, schedule []ScheduledRequest) vegeta.Metrics {
	for i, request := range schedule {
		if i == 0 || schedule[i-1].Intent != request.Intent { // the intent of a duplicate is known already
			r.History.Intend(*request.Intent)
		}
	}
	metrics := Attack(ctx, r.client, r.bases, r.headers, schedule)
	r.retrier.Wait()
	return metrics
}

// Settle sends one intent, and retries it until it is decided. It returns whether
// it happened.
func (r *Run) Settle(ctx context.Context, replica int, i *Intent) bool {
	record := r.History.Intend(*i)
	_ = send(ctx, r.client, r.bases[replica%len(r.bases)], *i, r.headers.of(*i))
	r.retrier.Wait()
	return r.History.outcome(record) == OK
}

// Ask reads a number from one replica after the other, until one answers.
func (r *Run) Ask(ctx context.Context, replica int, path string, client int, field string) (int64, error) {
	for {
		n, err := read(ctx, r.bases[replica%len(r.bases)]+path, r.headers.Clients[client], field)
		if err == nil || !fault.Wait(ctx, retryFirst) {
			return n, err
		}
		replica++
	}
}

// Close ends what is under way.
func (r *Run) Close() {
	r.end()
	r.retrier.Wait()
	r.client.CloseIdleConnections()
}

// read reads one field of a JSON answer.
func read(ctx context.Context, url string, header http.Header, field string) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	req.Header = header.Clone()
	res, err := private.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyMax))
	if err != nil || res.StatusCode != http.StatusOK {
		return 0, errors.Join(fmt.Errorf("%s: %s", res.Status, body), err)
	}
	var shown map[string]json.RawMessage
	var n int64
	if err := errors.Join(json.Unmarshal(body, &shown), json.Unmarshal(shown[field], &n)); err != nil {
		return 0, fmt.Errorf("no %s in it: %s", field, body)
	}
	return n, nil
}
