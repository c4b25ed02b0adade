package mongofault

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// CommitUnknown lets clients not know what became of their commits, in two ways
// in turn, each for one Phase:
//
//	cut     a commit is done, and the connection breaks instead of the answer
//	unsure  every commit is done, and the server says that it may be lost:
//	        a write concern error
//
// After a cut the driver sends the commit again by itself, and is answered
// that it was done. In the other phase the replica has to find out.
type CommitUnknown struct {
	Proxies []*Proxy
	Every   time.Duration // one cut, on one proxy after the other
	Phase   time.Duration // at most half of the time, so that both ways are tried
}

// maxTimeExpired is the error behind which WithTransaction says at once that it
// does not know. Behind others, such as 64, it sends the commit again and again,
// until its time is over or the phase is: then it knows, and the client gets a plain answer.
const maxTimeExpired = 50

// Inject counts the answers that were swallowed, and the write concern errors
// that clients were answered. Everything is as it was at the end.
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

// failCommits is for the clients of the proxies alone. It is set on all members: one of
// them is the primary.
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

// doubts are the keys that the proxies saw in doubt since the last time.
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
