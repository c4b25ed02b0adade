package mongofault

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// How long each needs: what has less time left is not begun.
const (
	StepDownNeeds     = 3500 * time.Millisecond
	PrimaryPauseNeeds = 6 * time.Second
	PrimaryKillNeeds  = 7 * time.Second
)

// StepDown tells the primary to step down, which ends the transactions that are
// open: the first time it hands over to another, in no time, then it just stops,
// and the others find out after two seconds, and so on.
type StepDown struct {
	Set   Set
	Times int
}

// Inject counts the elections: a split vote takes more than one.
func (s StepDown) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, s.Times, StepDownNeeds, s.once)
}

func (s StepDown) once(ctx context.Context, round int) (event fault.Event, err error) {
	hard := round%2 == 1 || len(s.Set) == 1 // alone it has no other to hand over to
	whole, cancel := fault.Undoing(ctx)
	defer cancel()
	old, before, err := s.Set.primary(whole, 0)
	if err != nil {
		return event, err
	}
	if err := holdTransaction(whole, old); err != nil {
		return event, err
	}
	open, err := openTransactions(whole, old)
	if err != nil {
		return event, err
	}
	event = fault.Event{What: "primary " + old.Addr + " steps down", At: time.Now()}
	wait := 10
	if hard {
		event.What += " by force"
		wait = 1
	}
	_, err = command(whole, old.Addr, "admin", bson.D{
		{Key: "replSetStepDown", Value: 60}, {Key: "secondaryCatchUpPeriodSecs", Value: wait}, {Key: "force", Value: hard},
	})
	if err != nil {
		return event, err
	}
	// It may be elected again at once: in a set of one, there is no other.
	_, err = command(whole, old.Addr, "admin", bson.D{{Key: "replSetFreeze", Value: 0}})
	_, term, elected := s.Set.primary(whole, before+1)
	if err = errors.Join(err, elected); err == nil {
		event.Hits, event.Seen = 1, map[string]int64{"step_downs": 1, "elections": term - before, "transactions_open": open}
	}
	err = errors.Join(err, s.Set.caughtUp(whole))
	event.Until = time.Now()
	return event, err
}

// PrimaryPause stops the primary, as a full disk or the move of a virtual machine
// does, until the others have elected another, and a little longer. When it goes
// on it believes that it is the primary, and has clients that believe it too.
type PrimaryPause struct {
	Set   Set // of three
	Times int
}

// linger is how long the old primary is still silent when there is a new one.
const linger = 500 * time.Millisecond

// Inject counts the elections. The old primary goes on in every ending.
func (p PrimaryPause) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, p.Times, PrimaryPauseNeeds, p.once)
}

func (p PrimaryPause) once(ctx context.Context, _ int) (event fault.Event, err error) {
	whole, cancel := fault.Undoing(ctx)
	defer cancel()
	old, before, err := p.Set.primary(whole, 0)
	if err != nil {
		return event, err
	}
	if err := holdTransaction(whole, old); err != nil {
		return event, err
	}
	open, err := openTransactions(whole, old)
	if err != nil {
		return event, err
	}
	event = fault.Event{What: "primary " + old.Addr + " stopped", At: time.Now()}
	defer func() {
		err = errors.Join(err, old.Server.Resume(whole), p.Set.caughtUp(whole))
		event.Until = time.Now()
	}()
	if err := old.Server.Pause(whole); err != nil {
		return event, err
	}
	_, term, err := p.Set.others(old).primary(ctx, before+1)
	if err != nil {
		return event, err
	}
	event.Hits, event.Seen = 1, map[string]int64{"primary_pauses": 1, "elections": term - before, "transactions_open": open}
	fault.Wait(ctx, linger)
	return event, nil
}

// transactionWait bounds the wait for a transaction. held is how long one is held.
const (
	transactionWait = 2 * time.Second
	held            = time.Second
)

// holdTransaction returns when an insert, which the wallet's transactions do behind their
// locks, stands still at the primary for a while: a transaction is open that the
// primary's end can interrupt. Without one in transactionWait the fault goes on, and the
// evidence tells.
func holdTransaction(ctx context.Context, primary fault.Member) error {
	answer, err := command(ctx, primary.Addr, "admin", bson.D{
		{Key: "configureFailPoint", Value: "failCommand"},
		{Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: bson.D{
			{Key: "failCommands", Value: bson.A{"insert"}},
			{Key: "blockConnection", Value: true},
			{Key: "blockTimeMS", Value: held.Milliseconds()},
		}},
	})
	if err != nil {
		return err
	}
	entered, _ := answer.Lookup("count").AsInt64OK()
	if _, err = command(ctx, primary.Addr, "admin", bson.D{
		{Key: "waitForFailPoint", Value: "failCommand"},
		{Key: "timesEntered", Value: entered + 1},
		{Key: "maxTimeMS", Value: transactionWait.Milliseconds()},
	}); err != nil {
		_, err = command(ctx, primary.Addr, "admin", bson.D{{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: "off"}})
	}
	return err
}

// openTransactions is how many are open at a member, by its own count.
func openTransactions(ctx context.Context, m fault.Member) (int64, error) {
	answer, err := command(ctx, m.Addr, "admin", bson.D{{Key: "serverStatus", Value: 1}})
	n, _ := answer.Lookup("transactions", "currentOpen").AsInt64OK()
	return n, err
}

// PrimaryKill kills a primary that is alone with its latest writes:
//
//	0 ms     both secondaries fetch nothing more. The primary goes on, and acknowledges
//	         what asks for no more than the primary; a majority acknowledges nothing new
//	~100 ms  a client has written: the secondaries are stopped
//	~600 ms  the primary is killed, the secondaries go on: one is elected, and has none of it
//	~3 s     the dead one is started, finds that it has what no other has, and rolls it back,
//	         into files below rollback/
//
// Stopping alone would lose nothing: a primary sends what it writes without being
// asked, into sockets, where it waits for the secondaries to go on, long after the
// primary's death. And stopping at once may lose nothing either: clients that wait
// for the acknowledgement of what the secondaries have fetched write nothing more.
type PrimaryKill struct {
	Set   Set // of three
	Times int
}

// alone is how long the primary writes what no other has, and writeWait how long a
// client's first such write is waited for: secondaries that fetch nothing acknowledge with
// their next heartbeat, every two seconds, what they have.
const (
	alone     = 500 * time.Millisecond
	writeWait = 5 * time.Second
)

// Inject counts the elections, and the documents that were taken back. At the end
// of each kill all members are up, and have caught up.
func (k PrimaryKill) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, k.Times, PrimaryKillNeeds, k.once)
}

func (k PrimaryKill) once(ctx context.Context, _ int) (event fault.Event, err error) {
	whole, cancel := fault.Undoing(ctx)
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
	event = fault.Event{What: "primary " + old.Addr + " killed", Hits: 1}
	event.Seen = map[string]int64{"primary_kills": 1}
	defer func() { event.Until = time.Now() }()
	if event.At, err = k.killAlone(whole, old); err != nil {
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

// killAlone kills the primary when it has written for a while what no other has, and
// returns when that was.
func (k PrimaryKill) killAlone(ctx context.Context, primary fault.Member) (at time.Time, err error) {
	others := k.Set.others(primary)
	defer func() {
		for _, m := range others {
			err = errors.Join(err, m.Server.Resume(ctx), fetch(ctx, m))
		}
	}()
	for _, m := range others {
		if err := fetchNothing(ctx, m, primary); err != nil {
			return time.Now(), err
		}
	}
	if err := written(ctx, primary); err != nil {
		return time.Now(), err
	}
	for _, m := range others {
		if err := m.Server.Pause(ctx); err != nil {
			return time.Now(), err
		}
	}
	fault.Wait(ctx, alone)
	at = time.Now()
	return at, primary.Server.Kill(ctx)
}

// written returns when a client has written to the primary, and the journal has it, or
// after writeWait: then there may be nothing to roll back, and the evidence tells.
func written(ctx context.Context, primary fault.Member) error {
	from, err := lastWrite(ctx, primary)
	for end := time.Now().Add(writeWait); err == nil && time.Now().Before(end) && fault.Wait(ctx, askEvery); {
		var now bson.RawValue
		if now, err = lastWrite(ctx, primary); !now.Equal(from) {
			break
		}
	}
	if err != nil {
		return err
	}
	return note(ctx, primary, "written", bson.D{{Key: "w", Value: 1}, {Key: "j", Value: true}})
}

// lastWrite is when a client last wrote to m: its oplog less the notes.
func lastWrite(ctx context.Context, m fault.Member) (at bson.RawValue, err error) {
	answer, err := command(ctx, m.Addr, "local", bson.D{
		{Key: "find", Value: "oplog.rs"},
		{Key: "filter", Value: bson.D{{Key: "op", Value: bson.D{{Key: "$ne", Value: "n"}}}}},
		{Key: "sort", Value: bson.D{{Key: "$natural", Value: -1}}},
		{Key: "limit", Value: 1},
		{Key: "projection", Value: bson.D{{Key: "ts", Value: 1}}},
	})
	return answer.Lookup("cursor", "firstBatch", "0", "ts"), err
}

// noFetching is a switch in the server, for MongoDB's own tests of rollbacks.
const noFetching = "stopReplProducer"

// fetchNothing returns when m has given up fetching from the primary: it notices
// with the next write that it is sent.
func fetchNothing(ctx context.Context, m, primary fault.Member) error {
	answer, err := command(ctx, m.Addr, "admin", bson.D{{Key: "configureFailPoint", Value: noFetching}, {Key: "mode", Value: "alwaysOn"}})
	if err != nil {
		return err
	}
	entered, _ := answer.Lookup("count").AsInt64OK()
	if err := note(ctx, primary, "fetch nothing", bson.D{{Key: "w", Value: 1}}); err != nil {
		return err
	}
	_, err = command(ctx, m.Addr, "admin", bson.D{
		{Key: "waitForFailPoint", Value: noFetching}, {Key: "timesEntered", Value: entered + 1}, {Key: "maxTimeMS", Value: 10000},
	})
	return err
}

func fetch(ctx context.Context, m fault.Member) error {
	_, err := command(ctx, m.Addr, "admin", bson.D{{Key: "configureFailPoint", Value: noFetching}, {Key: "mode", Value: "off"}})
	return err
}
