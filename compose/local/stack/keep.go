// SPDX-License-Identifier: MIT

package stack

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

// keep starts a server again whenever it has died, as restart: unless-stopped does in compose.yaml.
func (s *supervisor) keep(i *instance) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.kept {
		return nil
	}
	i.kept = true
	go func() {
		for range time.Tick(keepTick) {
			if err := s.startAgain(i); err != nil {
				fmt.Fprintln(os.Stderr, err) // into the log of the supervisor
				i.giveUp()
				return
			}
		}
	}()
	return nil
}

// startAgain does nothing unless the server has died.
func (s *supervisor) startAgain(i *instance) error {
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
	return errors.Join(err, s.track(nil))
}

// giveUp lets death report the server.
func (i *instance) giveUp() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.kept, i.expected = false, true
}
