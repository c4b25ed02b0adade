package mongofault

import (
	"context"
	"errors"
	"fmt"
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

// series does one thing several times, spread evenly. It does not begin what it
// could not end in time.
func series(ctx context.Context, over time.Duration, times int, needs time.Duration, once func(context.Context) (fault.Event, error)) (events []fault.Event, err error) {
	began := time.Now()
	for i := range times {
		due := over * time.Duration(i) / time.Duration(times)
		if !fault.Wait(ctx, due-time.Since(began)) || over-time.Since(began) < needs {
			break
		}
		event, err := once(ctx)
		if event.Hits > 0 {
			events = append(events, event)
		}
		if err != nil {
			return events, fmt.Errorf("%s: %w", event.What, err)
		}
	}
	return events, ctx.Err()
}

// undoing is for what is not to be called off half way.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoWait)
}

// StepDown tells the primary to step down, which ends the transactions that are
// open: the first time it hands over to another, in no time, then it just stops,
// and the others find out after two seconds, and so on.
type StepDown struct {
	Set   Set
	Times int
}

// Inject counts the elections: a split vote takes more than one.
func (s StepDown) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	rounds := 0
	return series(ctx, over, s.Times, StepDownNeeds, func(ctx context.Context) (fault.Event, error) {
		rounds++
		alone := len(s.Set) == 1 // there is no other to hand over to
		return s.once(ctx, alone || rounds%2 == 0)
	})
}

func (s StepDown) once(ctx context.Context, hard bool) (event fault.Event, err error) {
	whole, cancel := undoing(ctx)
	defer cancel()
	old, before, err := s.Set.primary(whole, 0)
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
		event.Hits, event.Seen = 1, map[string]int64{"step_downs": 1, "elections": term - before}
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
	return series(ctx, over, p.Times, PrimaryPauseNeeds, p.once)
}

func (p PrimaryPause) once(ctx context.Context) (event fault.Event, err error) {
	whole, cancel := undoing(ctx)
	defer cancel()
	old, before, err := p.Set.primary(whole, 0)
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
	event.Hits, event.Seen = 1, map[string]int64{"primary_pauses": 1, "elections": term - before}
	fault.Wait(ctx, linger)
	return event, nil
}
