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

// Chaser sends undecided keys again, to one replica after the other, until they
// are decided: what a careful client does. Its patience has an end, and a key
// that outlives it stays undecided in the history, which fails the proof.
type Chaser struct {
	Client  *http.Client
	Bases   []string
	Headers Headers
	History *History

	work  sync.WaitGroup
	slots chan struct{}
}

// Waits between attempts for one key double from the first to the last, and
// are cut by a random part, so that the chased do not come back as one crowd.
const (
	chaseFirst = 30 * time.Millisecond
	chaseLast  = time.Second
	chaseWidth = 128 // at once: one that waits for a lock must not keep all others from asking
)

// NewChaser makes a Chaser whose attempts go through client, and so into history.
func NewChaser(client *http.Client, bases []string, headers Headers, history *History) *Chaser {
	return &Chaser{
		Client: client, Bases: bases, Headers: headers, History: history,
		slots: make(chan struct{}, chaseWidth),
	}
}

// Chase takes care of one intent, until ctx ends.
func (c *Chaser) Chase(ctx context.Context, r *Record) {
	c.work.Go(func() {
		next := rand.IntN(len(c.Bases))
		for wait := chaseFirst; !c.History.Decided(r.Key); wait = min(2*wait, chaseLast) {
			if !fault.Wait(ctx, wait/2+rand.N(wait/2)) {
				return
			}
			c.once(ctx, r, c.Bases[next%len(c.Bases)])
			next++
		}
	})
}

// Follow sends what comes of an answer, each shot At so long from now. It is to
// be called from an attempt under way, so that Wait cannot miss it.
func (c *Chaser) Follow(ctx context.Context, shots []Shot) {
	for _, shot := range shots {
		c.work.Go(func() {
			if !fault.Wait(ctx, shot.At) {
				return
			}
			c.History.Intend(*shot.Intent)
			_ = send(ctx, c.Client, c.Bases[shot.Replica], *shot.Intent, c.Headers.of(*shot.Intent))
		})
	}
}

func (c *Chaser) once(ctx context.Context, r *Record, base string) {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	if ctx.Err() != nil || c.History.Decided(r.Key) { // its twin was quicker
		return
	}
	_ = send(ctx, c.Client, base, r.Intent, c.Headers.of(r.Intent))
}

// Wait returns when nothing is left to chase. Call it when no more Chase can come.
func (c *Chaser) Wait() { c.work.Wait() }

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
