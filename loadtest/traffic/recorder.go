// SPDX-License-Identifier: MIT

package traffic

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Recorder records every attempt of every key. The results of vegeta hold neither the key nor the replica.
//
// Recorder also prevents retries by net/http itself: a Transport sends a request again if a reused
// connection breaks under it and the request has an Idempotency-Key. The service would see two attempts,
// the history one. The Transport looks for the header under its canonical name, so the Recorder writes it
// in lower case, which is the same to every server. The Transport then returns the error, and the retry is
// recorded. Attempt.Sends counts the requests that were really written.
type Recorder struct {
	Next      http.RoundTripper
	History   *History
	Header    string         // name of the header with the key
	Replicas  map[string]int // host:port → number
	Classify  func(int, http.Header, []byte) (Outcome, string)
	Stored    []string      // the refusals that the service stores with the key
	Undecided func(*Record) // called once for each intent that has to be retried
	Decided   func(Record)  // called once for each intent, with its first final answer; may be nil

	mu       sync.Mutex
	underWay map[int]int                   // attempts that replicas have not answered
	clients  map[*sends]context.CancelFunc // of the attempts under way; each makes the client hang up
}

// UnderWay counts the attempts that a replica has not answered yet.
func (r *Recorder) UnderWay(replica int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.underWay[replica]
}

func (r *Recorder) carry(replica, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.underWay == nil {
		r.underWay = map[int]int{}
	}
	r.underWay[replica] += n
}

// historyKey is the header that carries Intent.Key to the Recorder, which removes it: two intents may
// share one idempotency key.
const historyKey = "Loadtest-Intent"

// bodyMax bounds how much of an answer is read.
const bodyMax = 1 << 20

// RoundTrip sends one attempt and reads its whole answer: the attempt ends with the last byte, as it does
// for a client.
func (r *Recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	replica := r.Replicas[req.URL.Host]
	sent := &sends{onWrite: func() { r.carry(replica, 1) }}
	defer func() { r.carry(replica, -int(sent.written.Load())) }()
	ctx, leave := r.client(req.Context(), sent)
	defer leave()
	once := req.Clone(httptrace.WithClientTrace(ctx, sent.trace()))
	key := req.Header.Get(r.Header)
	once.Header.Del(r.Header)
	once.Header.Del(historyKey)
	once.Header[strings.ToLower(r.Header)] = []string{key}
	attempt := Attempt{Key: cmp.Or(req.Header.Get(historyKey), key), Replica: replica, Start: r.History.Now()}
	res, body, err := r.exchange(once)
	attempt.End = r.History.Now()
	attempt.Sends = int(sent.written.Load())
	switch {
	case err == nil:
		attempt.Status = res.StatusCode
		attempt.Outcome, attempt.Problem = r.Classify(res.StatusCode, res.Header, body)
		if attempt.Outcome == Duplicate {
			attempt.Outcome, attempt.Duplicate = OK, true
		}
		attempt.Stored = attempt.Outcome == Rejected && slices.Contains(r.Stored, attempt.Problem)
	case sent.connected.Load():
		attempt.Outcome = Unknown // a part of the request may have arrived
	default:
		attempt.Outcome = Open // without a connection nothing happened
	}
	if err != nil {
		attempt.Error = err.Error()
	}
	retry, decided := r.History.Add(attempt, body)
	if retry != nil && r.Undecided != nil {
		r.Undecided(retry)
	}
	if decided != nil && r.Decided != nil {
		r.Decided(*decided)
	}
	return res, err
}

// client returns a ctx that ends when the client of an attempt hangs up. leave ends the attempt.
func (r *Recorder) client(ctx context.Context, sent *sends) (_ context.Context, leave func()) {
	ctx, hangUp := context.WithCancel(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.clients == nil {
		r.clients = map[*sends]context.CancelFunc{}
	}
	r.clients[sent] = hangUp
	return ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.clients, sent)
		hangUp()
	}
}

// HangUp ends about half of the attempts whose request was sent and is not answered yet, and returns how many.
func (r *Recorder) HangUp() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for sent, end := range r.clients {
		if sent.written.Load() > 0 && rand.IntN(2) == 0 {
			end()
			delete(r.clients, sent)
			n++
		}
	}
	return n
}

func (r *Recorder) exchange(req *http.Request) (*http.Response, []byte, error) {
	res, err := r.Next.RoundTrip(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, bodyMax))
	if err != nil { // an incomplete answer counts as no answer
		return nil, nil, fmt.Errorf("read answer: %w", err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, body, nil
}

// sends counts the requests that the Transport really writes.
type sends struct {
	connected atomic.Bool
	written   atomic.Int32
	onWrite   func()
}

func (s *sends) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { s.connected.Store(true) },
		WroteHeaders: func() { s.written.Add(1); s.onWrite() },
	}
}

// CloseIdleConnections is called by http.Client.CloseIdleConnections. Without it the connections of a
// finished run stay open, and each keeps two goroutines in the replica.
func (r *Recorder) CloseIdleConnections() {
	if next, can := r.Next.(interface{ CloseIdleConnections() }); can {
		next.CloseIdleConnections()
	}
}

// Client returns the http.Client that vegeta and the retries share, with at most maxConns connections to
// each replica. (vegeta.MaxConnections sets the same field, but only of a bare *http.Transport.)
func (r *Recorder) Client(maxConns int, timeout time.Duration) *http.Client {
	r.Next = &http.Transport{
		MaxConnsPerHost:     maxConns,
		MaxIdleConnsPerHost: maxConns,
		DisableCompression:  true,
	}
	return &http.Client{Transport: r, Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}
