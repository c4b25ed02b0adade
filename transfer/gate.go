package transfer

import (
	"sync"
	"time"

	"shop/locking"
)

// probeEvery is how often one transfer asks a lock service again that does not answer.
const probeEvery = 250 * time.Millisecond

// gate is in front of the lock service.
//
//	open ──no answer──► closed ──a probe is answered──► open
//	                     │  ▲
//	                     └──┘ the probe gets no answer
//
// While closed, one transfer every probeEvery asks, and the others are refused
// at once: they do not queue for a time-out, each with a client waiting. Those that hold a lease do not
// come by here; they finish while they may trust it.
type gate struct {
	mu      sync.Mutex
	why     error     // nil: open
	probeAt time.Time // the next one after this may ask
}

// pass says whether one may ask; while closed, whether it is the probe.
func (g *gate) pass() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.why == nil {
		return nil
	}
	now := time.Now()
	if now.Before(g.probeAt) {
		return &UnavailableError{g.why}
	}
	g.probeAt = now.Add(probeEvery)
	return nil
}

// close is told that there was no answer.
func (g *gate) close(why error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why, g.probeAt = why, time.Now().Add(probeEvery)
	return &UnavailableError{why}
}

// listen opens the gate again when it hears an answer. A time-out in a queue is
// none, it may be a queue of this process.
func (g *gate) listen(e locking.Event) {
	if e.Kind != locking.Busy && e.Kind != locking.Acquired {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.why = nil
}
