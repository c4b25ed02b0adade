package pgfault

import (
	"context"
	"sync"
	"time"

	"shop/loadtest/fault"
)

// CommitCut breaks connections at the one moment at which a client cannot know
// what it did: right before, or right after, the segment with its COMMIT gets to
// PostgreSQL. Only a COMMIT that would make money move is worth it, and of each
// intent only one: what comes again with the same key may have nothing to do.
type CommitCut struct {
	Proxies []*Proxy
	Every   time.Duration // the next COMMIT is cut, on any proxy
}

// Inject alternates between before and after. It counts as "after" only what
// the server has committed: it said so, and no client got the answer.
func (c CommitCut) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	event := fault.Event{What: "connections cut at COMMIT", At: time.Now()}
	s := &scissors{orders: make(chan action, 1), keys: map[string]bool{}}
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
		case s.orders <- m: // when the last one was carried out
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
	before, after := s.stop(ctx)
	event.Keys = s.cutKeys
	event.Until, event.Hits = time.Now(), before+after
	event.Seen = map[string]int64{"commits_cut_before": before, "commits_cut_after": after}
	return []fault.Event{event}, ctx.Err()
}

// scissors do with the next COMMIT what the last order says.
type scissors struct {
	orders chan action

	mu      sync.Mutex
	before  int64
	after   []*segment
	keys    map[string]bool // of those that were cut, with their clients
	cutKeys []string        // … without
}

func (s *scissors) cut(p *segment) action {
	if !p.commits || !p.asks {
		return deliver
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[p.tx.key] {
		return deliver
	}
	select {
	case m := <-s.orders:
		if p.tx.key != "" {
			s.keys[p.tx.key] = true
			s.cutKeys = append(s.cutKeys, p.tx.plain)
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

// stop takes the last order back, and counts.
func (s *scissors) stop(ctx context.Context) (before, after int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.orders:
	default:
	}
	for _, p := range s.after {
		if fault.Within(ctx, answerWait, p.tx.ended) && p.tx.committed {
			after++
		}
	}
	return s.before, after
}
