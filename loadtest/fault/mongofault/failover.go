// SPDX-License-Identifier: MIT

package mongofault

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"shop/loadtest/fault"
)

// How long each fault needs. It does not begin if less time is left.
const (
	StepDownNeeds     = 3500 * time.Millisecond
	PrimaryPauseNeeds = 6 * time.Second
	PrimaryKillNeeds  = 7 * time.Second
)

// StepDown makes the primary step down, which aborts the open transactions. In turn, the
// primary first hands over to another member at once, and then steps down by force, so that
// the others notice after two seconds.
type StepDown struct {
	Set   Set
	Times int
}

// Inject counts the elections: more than one after a split vote.
func (s StepDown) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	return fault.Series(ctx, over, s.Times, StepDownNeeds, s.once)
}

func (s StepDown) once(ctx context.Context, round int) (event fault.Event, err error) {
	hard := round%2 == 1 || len(s.Set) == 1 // a set of one has no member to hand over to
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
	// The old primary may be elected again at once, as it must be in a set of one.
	_, err = command(whole, old.Addr, "admin", bson.D{{Key: "replSetFreeze", Value: 0}})
	_, term, elected := s.Set.primary(whole, before+1)
	if err = errors.Join(err, elected); err == nil {
		event.Hits, event.Seen = 1, map[string]int64{"step_downs": 1, "elections": term - before, "transactions_open": open}
	}
	err = errors.Join(err, s.Set.CaughtUp(whole))
	event.Until = time.Now()
	return event, err
}

// PrimaryPause stops the primary, as a full disk or the migration of a virtual machine
// does, until a little after the others have elected another. When it resumes, it and
// its clients still take it for the primary.
type PrimaryPause struct {
	Set   Set // of three
	Times int
}

// linger is how long the old primary stays stopped after the election.
const linger = 500 * time.Millisecond

// Inject counts the elections. It resumes the old primary even if it fails or ctx ends.
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
		err = errors.Join(err, old.Server.Resume(whole), p.Set.CaughtUp(whole))
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

// transactionWait bounds the wait for a transaction. held is how long a transaction is held.
const (
	transactionWait = 2 * time.Second
	held            = time.Second
)

// holdTransaction blocks the next insert at the primary, and returns once it is blocked.
// The wallet's transactions insert after their locks, so a transaction is then open that the
// failure of the primary interrupts. If no insert comes within transactionWait the fault
// proceeds, and its evidence shows no open transaction.
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

// openTransactions returns how many transactions a member reports as open.
func openTransactions(ctx context.Context, m fault.Member) (int64, error) {
	answer, err := command(ctx, m.Addr, "admin", bson.D{{Key: "serverStatus", Value: 1}})
	n, _ := answer.Lookup("transactions", "currentOpen").AsInt64OK()
	return n, err
}

// PrimaryKill kills a primary that alone has its latest writes:
//
//	0 ms     both secondaries stop replicating. The primary goes on, and acknowledges
//	         writes with write concern 1; no new write reaches a majority
//	~100 ms  a client has written: the secondaries are paused
//	~600 ms  the primary is killed, the secondaries resume and elect one of them, without
//	         the latest writes
//	~3 s     the killed member is started, finds writes that no other member has, and rolls
//	         them back into files below rollback/
//
// Pausing the secondaries alone would lose nothing: the primary streams its writes into
// their sockets, where the data survives the primary's death until they resume. Pausing
// them at once may lose nothing either: clients that wait for the acknowledgement of
// writes that the secondaries have fetched write nothing more.
type PrimaryKill struct {
	Set   Set // of three
	Times int
}

// alone is how long the primary goes on alone. writeWait bounds the wait for a client's
// first write that only the primary has: secondaries that no longer fetch acknowledge what
// they have with their next heartbeat, every two seconds.
const (
	alone     = 500 * time.Millisecond
	writeWait = 5 * time.Second
)

// Inject counts the elections, and the documents that were rolled back. After
// each kill it waits until all members are up and have caught up.
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
	err = errors.Join(k.Set.CaughtUp(whole), setLifetime(whole, old, lifetime))
	after, failed := takenBack(old, "*")
	event.Seen["rolled_back"] = int64(len(after) - len(taken))
	return event, errors.Join(err, failed)
}

// killAlone kills the primary after it has been alone with its writes for a while, and
// returns the time of the kill.
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

// written waits until a client's write is in the primary's journal, or until writeWait is over:
// then there may be nothing to roll back, as the evidence will show.
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

// lastWrite returns the time of the last client's write in the oplog of m, which ignores notes.
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

// noFetching is a failpoint of the server, for MongoDB's own tests of rollbacks.
const noFetching = "stopReplProducer"

// fetchNothing stops m from fetching, and returns when it has stopped: m checks the
// failpoint when it gets the next write, so fetchNothing writes a note.
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
