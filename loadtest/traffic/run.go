// SPDX-License-Identifier: MIT

package traffic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/loadtest/fault"
)

// Run sends one plan to some replicas, until every key is decided.
type Run struct {
	*Retrier
	Recorder *Recorder
	retrying context.Context // ends when the time for retries is over
	end      context.CancelFunc
	Follow   func(Record) []ScheduledRequest // what clients send after a success; may be nil
}

// maxConns bounds the connections to each replica. It is more than are needed at once, so that no request
// waits for a connection, and low enough that a stalled replica does not use up all ports.
const (
	maxConns      = 64
	clientTimeout = 10 * time.Second
	Grace         = 20 * time.Second // after the last scheduled request, until every key must be decided
)

// NewRun returns a Run that has sent nothing yet. Its undecided keys are retried for at most retryFor.
// stored are the refusals that the service stores with the key: all further answers must be the same byte for byte.
func NewRun(ctx context.Context, bases []string, headers Headers, retryFor time.Duration,
	classify func(int, http.Header, []byte) (Outcome, string), stored ...string,
) (*Run, error) {
	numbers := map[string]int{}
	for n, base := range bases {
		u, err := url.Parse(base)
		if err != nil {
			return nil, errors.New("not the URL of a service (not shown, since it may hold a password): want http://127.0.0.1:8080")
		}
		numbers[u.Host] = n
	}
	r := &Run{Recorder: &Recorder{History: NewHistory(), Header: headers.Key, Replicas: numbers, Classify: classify, Stored: stored}}
	r.retrying, r.end = context.WithTimeout(ctx, retryFor)
	r.Retrier = NewRetrier(r.Recorder.Client(maxConns, clientTimeout), bases, headers, r.Recorder.History)
	r.Recorder.Undecided = func(record *Record) { r.Retry(r.retrying, record) }
	r.Recorder.Decided = func(record Record) {
		if r.Follow != nil {
			r.FollowUp(r.retrying, r.Follow(record))
		}
	}
	return r, nil
}

// Send sends the schedule, and returns when every key is decided or the time for retries is over.
func (r *Run) Send(ctx context.Context, schedule []ScheduledRequest) vegeta.Results {
	r.warm(ctx, schedule)
	begin := r.History.Epoch.Add(r.History.IntendAll(schedule))
	results := Attack(ctx, r.Client, r.Bases, r.Headers, begin, schedule)
	r.Wait()
	return results
}

// Begin sends one intent to the replica at base, and retries it like those of the load. ended is closed
// when the first attempt has ended.
func (r *Run) Begin(ctx context.Context, base string, i *Intent) (ended <-chan struct{}) {
	r.History.Intend(*i)
	done := make(chan struct{})
	r.work.Go(func() {
		defer close(done)
		_ = r.sendTo(ctx, base, *i)
	})
	return done
}

// Again sends an intent once more, to one of the replicas of the load, like a client that retries.
func (r *Run) Again(ctx context.Context, i *Intent) {
	r.work.Go(func() { _ = r.send(ctx, rand.IntN(len(r.Bases)), *i) })
}

// Hold keeps Send from returning until release is called, since more requests will be sent. It must be
// called while Send runs.
func (r *Run) Hold() (release func()) {
	done := make(chan struct{})
	r.work.Go(func() { <-done })
	return sync.OnceFunc(func() { close(done) })
}

// Settle sends one intent, retries it until it is decided, and returns its record.
func (r *Run) Settle(ctx context.Context, replica int, i *Intent) Record {
	return r.SettleAll(ctx, replica, i)[0]
}

// SettleAll sends some intents at the same time, each to the next replica, and retries them until all are
// decided.
func (r *Run) SettleAll(ctx context.Context, replica int, intents ...*Intent) (records []Record) {
	var sent sync.WaitGroup
	for n, i := range intents {
		r.History.Intend(*i)
		sent.Go(func() { _ = r.send(ctx, replica+n, *i) })
	}
	sent.Wait()
	r.Wait()
	for _, i := range intents {
		records = append(records, r.History.Record(i.Key))
	}
	return records
}

// ReadNumber reads a number. It requests one replica after the other until one answers.
func (r *Run) ReadNumber(ctx context.Context, replica int, path string, client int, field string) (int64, error) {
	for ; ; replica++ {
		n, err := read(ctx, r.Bases[replica%len(r.Bases)]+path, r.Headers.Clients[client], field)
		if err == nil || !fault.Wait(ctx, retryFirst) {
			return n, err
		}
	}
}

// Close stops the retries, and waits until the attempts under way have ended.
func (r *Run) Close() {
	r.end()
	r.Wait()
	r.Client.CloseIdleConnections()
}

// read reads one field of a JSON answer.
func read(ctx context.Context, url string, header http.Header, field string) (n int64, err error) {
	body, err := Fetch(ctx, url, header)
	if err != nil {
		return 0, err
	}
	var shown map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(body, &shown), json.Unmarshal(shown[field], &n)); err != nil {
		return 0, fmt.Errorf("no number in field %s: %s", field, body)
	}
	return n, nil
}

// private sends requests that are not recorded. It keeps no connections: the process at the address may
// be another one next time.
var private = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Fetch reads a resource.
func Fetch(ctx context.Context, url string, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	res, err := private.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyMax))
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return body, err
}

// Retrier sends undecided keys again, to one replica after the other, until they are decided, as a client
// must. It stops when its ctx ends: a key that is still undecided then fails the proof.
type Retrier struct {
	Client  *http.Client
	Bases   []string
	Headers Headers
	History *History

	work  sync.WaitGroup
	slots chan struct{}
}

// Waits between attempts for one key double from retryFirst to retryLast. Each is shortened by a random
// part, so that the retries are not sent at the same time.
const (
	retryFirst = 30 * time.Millisecond
	retryLast  = time.Second
	retryWidth = 128 // retries at once: one that waits for a lock must not hold back all others
)

// NewRetrier returns a Retrier whose attempts are sent by client, which records them in history.
func NewRetrier(client *http.Client, bases []string, headers Headers, history *History) *Retrier {
	return &Retrier{
		Client: client, Bases: bases, Headers: headers, History: history,
		slots: make(chan struct{}, retryWidth),
	}
}

// Retry retries one intent until it is decided, or ctx ends.
func (r *Retrier) Retry(ctx context.Context, record *Record) {
	r.work.Go(func() {
		replica := rand.IntN(len(r.Bases))
		for wait := retryFirst; !r.decided(record); wait = min(2*wait, retryLast) {
			if !fault.Wait(ctx, wait/2+rand.N(wait/2)) {
				return
			}
			r.once(ctx, record, replica)
			replica++
		}
	})
}

// FollowUp sends the requests that follow an answer, each at the time At from now. It must be called from an
// attempt under way, so that Wait cannot miss it.
func (r *Retrier) FollowUp(ctx context.Context, requests []ScheduledRequest) {
	now := r.History.Now()
	for _, request := range requests {
		r.work.Go(func() {
			if !fault.Wait(ctx, request.At) {
				return
			}
			r.History.IntendAt(now+request.At, *request.Intent)
			_ = r.send(ctx, request.Replica, *request.Intent)
		})
	}
}

func (r *Retrier) once(ctx context.Context, record *Record, replica int) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	if ctx.Err() != nil || r.decided(record) { // its duplicate may have decided it
		return
	}
	_ = r.send(ctx, replica, record.Intent)
}

func (r *Retrier) decided(record *Record) bool { return r.History.Record(record.Key).Outcome.Final() }

// Wait returns when nothing is left to retry. Call it when Retry can no longer be called.
func (r *Retrier) Wait() { r.work.Wait() }

// send makes one attempt at a replica. Its outcome is in the history.
func (r *Retrier) send(ctx context.Context, replica int, i Intent) error {
	return r.sendTo(ctx, r.Bases[replica%len(r.Bases)], i)
}

func (r *Retrier) sendTo(ctx context.Context, base string, i Intent) error {
	url := strings.TrimSuffix(base, "/") + i.Path
	req, err := http.NewRequestWithContext(ctx, i.Method, url, bytes.NewReader(i.Body))
	if err != nil {
		return err
	}
	req.Header = r.Headers.of(i)
	res, err := r.Client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.Body.Close()
}

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
