// SPDX-License-Identifier: MIT

package fault

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// AllKilled kills all servers of a service at once, and starts them again. No member of a cluster is left that has in memory
// what the others had not written. It is less than a power failure: the kernel keeps what a killed server has written, whether
// it was synced or not. Writes without a sync are lost only on a file system that forgets them, such as LazyFS, which needs FUSE.
type AllKilled struct {
	Servers []Server
	Times   int
	Dead    time.Duration // until they are started again
}

// AtOnce is how far apart the first and the last kill may be.
const AtOnce = time.Second

// Inject spreads the kills evenly. Those that were not at once are no evidence. All servers are started again, even if a
// kill fails or ctx ends. They are started together: a member of a cluster does not answer alone.
func (a AllKilled) Inject(ctx context.Context, over time.Duration) ([]Event, error) {
	return Series(ctx, over, a.Times, 0, func(ctx context.Context, _ int) (Event, error) {
		event := Event{What: fmt.Sprintf("all %d servers killed", len(a.Servers)), At: time.Now(), Hits: 1}
		killing, cancel := Undoing(ctx)
		defer cancel()
		killed := a.each(func(s Server) error { return s.Kill(killing) })
		if took := time.Since(event.At); killed == nil && took <= AtOnce {
			event.Seen = map[string]int64{"all_killed": 1}
		}
		Wait(ctx, a.Dead)
		starting, done := Undoing(ctx)
		defer done()
		started := a.each(func(s Server) error { return s.Start(starting) })
		event.Until = time.Now()
		return event, errors.Join(killed, started)
	})
}

// each calls do for all servers at the same time.
func (a AllKilled) each(do func(Server) error) error {
	errs := make([]error, len(a.Servers))
	var all sync.WaitGroup
	for n, s := range a.Servers {
		all.Go(func() { errs[n] = do(s) })
	}
	all.Wait()
	return errors.Join(errs...)
}
