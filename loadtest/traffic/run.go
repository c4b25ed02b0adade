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
	"slices"
	"strings"
	"sync"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
	"golang.org/x/sync/errgroup"

	"shop/loadtest/fault"
)

// Run sends one plan to some replicas. It sends undecided keys again, to one replica after the other, until they are decided, as
// a client must, or until the time for retries is over: a key that is still undecided then fails the proof.
type Run struct {
	Client   *http.Client
	Bases    []string
	Headers  Headers
	History  *History
	Recorder *Recorder
	Follow   func(Record) []ScheduledRequest // what clients send after a success; may be nil

	retrying context.Context // ends when the time for retries is over
	end      context.CancelFunc
	work     sync.WaitGroup
	slots    chan struct{} // of the retries
}

// maxConns bounds the connections to each replica. It is more than are needed at once, so that no request
// waits for a connection, and low enough that a stalled replica does not use up all ports.
const (
	maxConns      = 64
	clientTimeout = 10 * time.Second
	Grace         = 20 * time.Second // after the last scheduled request, until every key must be decided
)

// Waits between attempts for one key double from retryFirst to retryLast. Each is shortened by a random
// part, so that the retries are not sent at the same time.
const (
	retryFirst = 30 * time.Millisecond
	retryLast  = time.Second
	retryWidth = 128 // retries at once: one that waits for a lock must not hold back all others
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
	history := NewHistory()
	recorder := &Recorder{History: history, Header: headers.Key, Replicas: numbers, Classify: classify, Stored: stored}
	r := &Run{
		Client: recorder.Client(maxConns, clientTimeout), Bases: bases, Headers: headers, History: history, Recorder: recorder,
		slots: make(chan struct{}, retryWidth),
	}
	r.retrying, r.end = context.WithTimeout(ctx, retryFor)
	recorder.Undecided = func(record *Record) { r.Retry(r.retrying, record) }
	recorder.Decided = func(record Record) {
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

// Begin sends one intent to the replica at base, and retries it like those of the load.
func (r *Run) Begin(ctx context.Context, base string, i *Intent) {
	r.History.Intend(*i)
	r.work.Go(func() { _ = r.sendTo(ctx, base, *i) })
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

// Retry retries one intent until it is decided, or ctx ends.
func (r *Run) Retry(ctx context.Context, record *Record) {
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
func (r *Run) FollowUp(ctx context.Context, requests []ScheduledRequest) {
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

func (r *Run) once(ctx context.Context, record *Record, replica int) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	if ctx.Err() != nil || r.decided(record) { // its duplicate may have decided it
		return
	}
	_ = r.send(ctx, replica, record.Intent)
}

func (r *Run) decided(record *Record) bool { return r.History.Record(record.Key).Outcome.Final() }

// Wait returns when nothing is left to retry. Call it when Retry can no longer be called.
func (r *Run) Wait() { r.work.Wait() }

// send makes one attempt at a replica. Its outcome is in the history.
func (r *Run) send(ctx context.Context, replica int, i Intent) error {
	return r.sendTo(ctx, r.Bases[replica%len(r.Bases)], i)
}

func (r *Run) sendTo(ctx context.Context, base string, i Intent) error {
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

// replays is how many decided keys are sent once more after the load.
const replays = 40

// replayWidth is how many of them are sent at once: one after the other, a slow service would get no further than
// the first ones.
const replayWidth = 8

// Replay sends some decided keys again, to any replica, also one that was killed since. The answer must agree with
// the first one (the history sets Diverged if not); one that is not final, such as busy, is retried for as long as
// within. Replay returns how many keys were answered, and describes those that were not answered in time.
func (r *Run) Replay(ctx context.Context, within time.Duration) (answered int64, silent []string) {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	records := slices.DeleteFunc(r.History.Records(), func(r Record) bool { return r.Reads })
	var sent errgroup.Group
	sent.SetLimit(replayWidth)
	var mu sync.Mutex
	for i := 0; i < len(records); i += max(1, len(records)/replays) {
		record := records[i]
		if !record.Outcome.Final() {
			continue
		}
		sent.Go(func() error {
			done := r.resend(ctx, i, record.Intent)
			mu.Lock()
			defer mu.Unlock()
			if done {
				answered++
			} else {
				silent = append(silent, record.Key+": decided, but sent again it ended as "+r.History.Record(record.Key).Ended())
			}
			return nil
		})
	}
	_ = sent.Wait()
	slices.Sort(silent)
	return answered, silent
}

// resend sends a decided key until its answer is final, or until ctx ends.
func (r *Run) resend(ctx context.Context, replica int, i Intent) bool {
	for ; ctx.Err() != nil || r.send(ctx, replica, i) != nil || !r.History.Record(i.Key).Last().Outcome.Final(); replica++ {
		if !fault.Wait(ctx, retryFirst) {
			return false
		}
	}
	return true
}
