package mongofault

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// PrimaryKill kills a primary that is alone with its latest writes:
//
//	0 ms     both secondaries fetch nothing more, and are stopped; the primary goes on, and
//	         acknowledges what asks for no more than the primary. A majority acknowledges nothing
//	500 ms   the primary is killed, the secondaries go on: one is elected, and has none of it
//	~3 s     the dead one is started, finds that it has what no other has, and rolls it back,
//	         into files below rollback/
//
// Stopping alone would lose nothing: a primary sends what it writes without being
// asked, into sockets, where it waits for the secondaries to go on, long after the
// primary's death.
type PrimaryKill struct {
	Set   Set // of three
	Times int
}

// alone is how long the primary writes what no other has.
const alone = 500 * time.Millisecond

// Inject counts the elections, and the documents that were taken back. At the end
// of each kill all members are up, and have caught up.
func (k PrimaryKill) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return series(ctx, over, k.Times, PrimaryKillNeeds, k.once)
}

func (k PrimaryKill) once(ctx context.Context) (event fault.Event, err error) {
	whole, cancel := undoing(ctx)
	defer cancel()
	old, before, err := k.Set.primary(whole, 0)
	if err != nil {
		return event, err
	}
	lifetime, err := lifetimeOf(whole, old)
	if err != nil {
		return event, err
	}
	taken, err := takenBack(old, "*")
	if err != nil {
		return event, err
	}
	event = fault.Event{What: "primary " + old.Addr + " killed", At: time.Now(), Hits: 1}
	event.Seen = map[string]int64{"primary_kills": 1}
	defer func() { event.Until = time.Now() }()
	if err := k.killAlone(whole, old); err != nil {
		return event, err
	}
	_, term, err := k.Set.others(old).primary(whole, before+1)
	if err == nil {
		event.Seen["elections"] = term - before
	}
	if err := errors.Join(err, old.Server.Start(whole)); err != nil {
		return event, err
	}
	err = errors.Join(k.Set.caughtUp(whole), setLifetime(whole, old, lifetime))
	after, failed := takenBack(old, "*")
	event.Seen["rolled_back"] = int64(len(after) - len(taken))
	return event, errors.Join(err, failed)
}

// killAlone kills the primary when it has written for a while what no other has.
func (k PrimaryKill) killAlone(ctx context.Context, primary Member) (err error) {
	others := k.Set.others(primary)
	defer func() {
		for _, m := range others {
			err = errors.Join(err, m.Server.Resume(ctx), fetch(ctx, m))
		}
	}()
	for _, m := range others {
		if err := fetchNothing(ctx, m, primary); err != nil {
			return err
		}
	}
	for _, m := range others {
		if err := m.Server.Pause(ctx); err != nil {
			return err
		}
	}
	fault.Wait(ctx, alone)
	return primary.Server.Kill(ctx)
}

// noFetching is a switch in the server, for MongoDB's own tests of rollbacks.
const noFetching = "stopReplProducer"

// fetchNothing returns when m has given up fetching from the primary: it notices
// with the next write that it is sent.
func fetchNothing(ctx context.Context, m, primary Member) error {
	answer, err := command(ctx, m.Addr, "admin", bson.D{{Key: "configureFailPoint", Value: noFetching}, {Key: "mode", Value: "alwaysOn"}})
	if err != nil {
		return err
	}
	entered, _ := answer.Lookup("count").AsInt64OK()
	if _, err := command(ctx, primary.Addr, "admin", bson.D{
		{Key: "appendOplogNote", Value: 1},
		{Key: "data", Value: bson.D{{Key: "fetch", Value: "nothing"}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}},
	}); err != nil {
		return err
	}
	_, err = command(ctx, m.Addr, "admin", bson.D{
		{Key: "waitForFailPoint", Value: noFetching}, {Key: "timesEntered", Value: entered + 1}, {Key: "maxTimeMS", Value: 10000},
	})
	return err
}

func fetch(ctx context.Context, m Member) error {
	_, err := command(ctx, m.Addr, "admin", bson.D{{Key: "configureFailPoint", Value: noFetching}, {Key: "mode", Value: "off"}})
	return err
}
