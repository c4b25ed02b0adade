// SPDX-License-Identifier: MIT

package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

const (
	keepTick  = 10 * time.Millisecond
	keepPause = 100 * time.Millisecond // before a server that does not start is started again
	keepWait  = 10 * time.Second       // for a server that is started again
)

// Keep starts a server again whenever it has died, as restart: unless-stopped does in compose.yaml, and then calls
// started.
func (i *Instance) Keep(started func() error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kept {
		return
	}
	i.kept = true
	go func() {
		for range time.Tick(keepTick) {
			if err := i.startAgain(started); err != nil {
				fmt.Fprintln(os.Stderr, err) // into the log of this process
				i.giveUp()
				return
			}
		}
	}()
}

// startAgain does nothing unless the server has died.
func (i *Instance) startAgain(started func() error) error {
	i.op.Lock() // a request to stop it comes before, or after
	defer i.op.Unlock()
	i.mu.Lock()
	died := i.died()
	i.mu.Unlock()
	if !died {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), keepWait, fmt.Errorf("%s have passed", keepWait))
	defer cancel()
	err := i.startNow(ctx)
	for err != nil && ctx.Err() == nil { // it has died again before it was ready
		select {
		case <-ctx.Done():
		case <-time.After(keepPause):
			err = i.startNow(ctx)
		}
	}
	return errors.Join(err, started())
}

// giveUp lets Death report the server.
func (i *Instance) giveUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept, i.expected = false, true
}
