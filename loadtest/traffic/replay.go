// SPDX-License-Identifier: MIT

package traffic

import (
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"shop/loadtest/fault"
)

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
