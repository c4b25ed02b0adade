package loadtest

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"shop/loadtest/fault"
)

// Retrier sends undecided keys again, to one replica after the other, until they
// are decided: what a careful client does. Its patience has an end, and a key
// that outlives it stays undecided in the history, which fails the proof.
type Retrier struct {
	Client  *http.Client
	Bases   []string
	Headers Headers
	History *History

	work  sync.WaitGroup
	slots chan struct{}
}

// Waits between attempts for one key double from the first to the last, and
// are cut by a random part, so that the retries do not come at the same moment.
const (
	retryFirst = 30 * time.Millisecond
	retryLast  = time.Second
	retryWidth = 128 // at once: a request that waits for a lock must not hold back all others
)

// NewRetrier makes a Retrier whose attempts go through client, and so into history.
func NewRetrier(client *http.Client, bases []string, headers Headers, history *History) *Retrier {
	return &Retrier{
		Client: client, Bases: bases, Headers: headers, History: history,
		slots: make(chan struct{}, retryWidth),
	}
}

// Retry retries one intent until it is decided, or ctx ends.
func (r *Retrier) Retry(ctx context.Context, record *Record) {
	r.work.Go(func() {
		next := rand.IntN(len(r.Bases))
		for wait := retryFirst; !r.History.Decided(record.Key); wait = min(2*wait, retryLast) {
			if !fault.Wait(ctx, wait/2+rand.N(wait/2)) {
				return
			}
			r.once(ctx, record, r.Bases[next%len(r.Bases)])
			next++
		}
	})
}

// FollowUp sends what an answer gives rise to, each request At so long from now. It is
// to be called from an attempt under way, so that Wait cannot miss it.
func (r *Retrier) FollowUp(ctx context.Context, requests []ScheduledRequest) {
	for _, request := range requests {
		r.work.Go(func() {
			if !fault.Wait(ctx, request.At) {
				return
			}
			r.History.Intend(*request.Intent)
			_ = send(ctx, r.Client, r.Bases[request.Replica], *request.Intent, r.Headers.of(*request.Intent))
		})
	}
}

func (r *Retrier) once(ctx context.Context, record *Record, base string) {
	r.slots <- struct{}{}
	defer func() { <-r.slots }()
	if ctx.Err() != nil || r.History.Decided(record.Key) { // its duplicate was quicker
		return
	}
	_ = send(ctx, r.Client, base, record.Intent, r.Headers.of(record.Intent))
}

// Wait returns when nothing is left to retry. Call it when no more Retry can come.
func (r *Retrier) Wait() { r.work.Wait() }

// send makes one attempt. What came of it is in the history.
func send(ctx context.Context, client *http.Client, base string, i Intent, header http.Header) error {
	req, err := newRequest(ctx, base, i, header)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.Body.Close()
}
