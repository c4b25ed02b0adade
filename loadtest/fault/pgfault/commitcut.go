// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"slices"
	"sync"
	"time"

	"shop/loadtest/fault"
)

// CommitCut breaks connections at the one moment that leaves a client in doubt about
// its effect: right before, or right after, the segment with its COMMIT reaches
// PostgreSQL. It cuts only COMMITs that would move money, and only one for each
// idempotency key, since a repeated request may have nothing left to do.
//
// It also watches the lease of a batch whose COMMIT it cut: its holder must give it up, and guard no account with
// its fence any more, since it does not know what the rows hold.
type CommitCut struct {
	Proxies []*Proxy
	Every   time.Duration // the next COMMIT is cut, on any proxy
}

// Inject alternates between before and after. It counts a cut as "after" only if
// the server acknowledged the commit, in an answer that the client did not get.
func (c CommitCut) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	event := fault.Event{What: "connections cut at COMMIT", At: time.Now()}
	s := &scissors{orders: make(chan action, 1), keys: map[string]bool{}, fences: map[int64]bool{}}
	for _, w := range c.Proxies {
		w.intercept(s.cut)
	}
	end := time.NewTimer(over)
	defer end.Stop()
	for i, going := 0, true; going; i++ {
		m := cutBefore
		if i%2 == 1 {
			m = cutAfter
		}
		select {
		case s.orders <- m: // blocks until the last order is carried out
			going = fault.Wait(ctx, min(c.Every, over-time.Since(event.At)))
		case <-end.C:
			going = false
		case <-ctx.Done():
			going = false
		}
		going = going && time.Since(event.At) < over
	}
	for _, w := range c.Proxies {
		w.intercept(nil)
	}
	s.stop(ctx, &event)
	return []fault.Event{event}, ctx.Err()
}

// scissors carry out the last order at the next COMMIT.
type scissors struct {
	orders chan action

	mu      sync.Mutex
	before  int64
	after   []*segment
	keys    map[string]bool // idempotency keys that were cut, with their clients
	cutKeys []string        // … without their clients
	fences  map[int64]bool  // of the batches that were cut
	kept    int64           // transactions that began with one of these fences
}

func (s *scissors) cut(p *segment) action {
	if p.tx == nil || !p.asks {
		return deliver
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.touches && s.fences[p.tx.fence] {
		s.kept++
	}
	if !p.commits || s.keys[p.tx.key] {
		return deliver
	}
	select {
	case m := <-s.orders:
		if p.tx.key != "" {
			s.keys[p.tx.key] = true
			s.cutKeys = append(s.cutKeys, p.tx.plain)
		}
		if p.tx.batch && p.tx.fence != 0 {
			s.fences[p.tx.fence] = true
		}
		if m == cutBefore {
			s.before++
		} else {
			s.after = append(s.after, p)
		}
		return m
	default:
		return deliver
	}
}

// stop withdraws the last order, and counts the cuts. A segment that came before may still be in cut.
func (s *scissors) stop(ctx context.Context, event *fault.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.orders:
	default:
	}
	after := int64(0)
	for _, p := range s.after {
		if fault.Within(ctx, answerWait, p.tx.ended) && p.tx.committed {
			after++
		}
	}
	event.Keys, event.Until, event.Hits = slices.Clone(s.cutKeys), time.Now(), s.before+after
	event.Seen = map[string]int64{"commits_cut_before": s.before, "commits_cut_after": after, "batches_cut": int64(len(s.fences)), "fence_kept": s.kept}
}
