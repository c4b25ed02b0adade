// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// CommitUnknown leaves clients in doubt about their commits, in two ways that
// alternate, each for one Phase:
//
//	cut     a commit succeeds, but the connection breaks before the answer
//	unsure  every commit succeeds, but the server answers with a write concern
//	        error: the commit may be lost
//
// After a cut the driver itself sends the commit again, and learns that it has
// succeeded. After a write concern error the replica has to resolve the commit.
type CommitUnknown struct {
	Proxies []*Proxy
	Every   time.Duration // between two cuts; the proxies take turns
	Phase   time.Duration // shortened to half of the time, so that both ways are used
}

// maxTimeExpired is the error after which WithTransaction returns an unknown result
// at once. After other errors, such as 64, it repeats the commit until its own time or the
// phase is over. Once the phase is over the commit succeeds, and the client gets a plain answer.
const maxTimeExpired = 50

// Inject counts the dropped answers, and the write concern errors that clients got.
// At the end, the failpoint is off and no cut is pending.
func (c CommitUnknown) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	var events []fault.Event
	end, part := time.Now().Add(over), min(c.Phase, over/2)
	for i := 0; ctx.Err() == nil && time.Until(end) > 0; i++ {
		phase := c.cut
		if i%2 == 1 {
			phase = c.unsure
		}
		event, err := phase(ctx, min(part, time.Until(end)))
		events = append(events, event)
		if err != nil {
			return events, fmt.Errorf("%s: %w", event.What, err)
		}
	}
	return events, ctx.Err()
}

func (c CommitUnknown) cut(ctx context.Context, d time.Duration) (fault.Event, error) {
	event := fault.Event{What: "answers to commits cut", At: time.Now()}
	before := c.sum(cutSoFar)
	for i, end := 0, event.At.Add(d); time.Now().Before(end); i++ {
		c.Proxies[i%len(c.Proxies)].cuts.Store(1)
		if !fault.Wait(ctx, min(c.Every, time.Until(end))) {
			break
		}
	}
	for _, w := range c.Proxies {
		w.cuts.Store(0)
	}
	event.Until, event.Hits = time.Now(), c.sum(cutSoFar)-before
	event.Seen, event.Keys = map[string]int64{"commits_cut": event.Hits}, c.doubts()
	return event, nil
}

func (c CommitUnknown) unsure(ctx context.Context, d time.Duration) (event fault.Event, err error) {
	event = fault.Event{What: "commits not acknowledged", At: time.Now()}
	whole, cancel := fault.Undoing(ctx)
	defer cancel()
	before := c.sum(failedSoFar)
	defer func() {
		err = errors.Join(err, c.failCommits(whole, "off"))
		event.Until, event.Hits = time.Now(), c.sum(failedSoFar)-before
		event.Seen, event.Keys = map[string]int64{"commits_failed": event.Hits}, c.doubts()
	}()
	if err := c.failCommits(whole, "alwaysOn"); err != nil {
		return event, err
	}
	fault.Wait(ctx, d)
	return event, nil
}

// failCommits sets the failpoint on all members, since any of them may be the primary. It
// affects only the clients of the proxies.
func (c CommitUnknown) failCommits(ctx context.Context, mode string) (err error) {
	for _, host := range c.Proxies[0].hosts {
		_, failed := command(ctx, host, "admin", bson.D{
			{Key: "configureFailPoint", Value: "failCommand"},
			{Key: "mode", Value: mode},
			{Key: "data", Value: bson.D{
				{Key: "failCommands", Value: bson.A{commit}},
				{Key: "appName", Value: c.Proxies[0].clients},
				{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: maxTimeExpired}, {Key: "errmsg", Value: "waiting for replication timed out"}}},
			}},
		})
		err = errors.Join(err, failed)
	}
	return err
}

// doubts returns the keys that were left in doubt since the last call.
func (c CommitUnknown) doubts() (keys []string) {
	for _, w := range c.Proxies {
		keys = append(keys, w.recorder.takeDoubts()...)
	}
	return keys
}

func (c CommitUnknown) sum(of func(*Proxy) int64) (n int64) {
	for _, w := range c.Proxies {
		n += of(w)
	}
	return n
}

func cutSoFar(p *Proxy) int64    { return p.cut.Load() }
func failedSoFar(p *Proxy) int64 { return p.failed.Load() }
