package locking

import (
	"context"
	"log/slog"
	"time"
)

// Kind says what happened to a lock.
type Kind string

// The kinds of Event. Each Acquired of Do is followed by exactly one Released or
// Left, and before that by at most one Lost.
const (
	Attempt  Kind = "attempt"   // the store is asked
	Busy     Kind = "busy"      // … and another holder has a key
	Acquired Kind = "acquired"  // … and granted
	TimedOut Kind = "timed_out" // ctx ended before a grant
	Failed   Kind = "failed"    // the store gave no answer, to acquire or renew; Err
	Renewed  Kind = "renewed"   // the trust goes on
	Lost     Kind = "lost"      // the trust is over while fn runs, or was when it returned; Err is the cause
	Released Kind = "released"  // fn returned, the keys are free
	Left     Kind = "left"      // fn returned, the keys were not given back: lost before, no answer, or left to run out on purpose; Err
)

// Event is what an Observer receives.
type Event struct {
	Kind  Kind
	Keys  []string // not to be changed
	Owner string
	Fence Fence
	Wait  time.Duration // from the first attempt
	Held  time.Duration // since the grant
	Err   error
}

// Observer receives each event, in the goroutine in which it happened: it must
// be safe for concurrent use, and must not block, because a renewal may be waiting.
type Observer func(Event)

// Observers tells each of list, in order. nil ones are left out; if there is none left, it is nil.
func Observers(list ...Observer) Observer {
	var all []Observer
	for _, o := range list {
		if o != nil {
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return func(e Event) {
		for _, o := range all {
			o(e)
		}
	}
}

// Log writes one structured line for each event: event, key, owner, fence, wait,
// held, err, each where it is set. TimedOut, Failed, Lost and Left are at warn
// level, all other events at debug.
func Log(logger *slog.Logger) Observer {
	return func(e Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case TimedOut, Failed, Lost, Left:
			level = slog.LevelWarn
		}
		ctx := context.Background()
		if logger.Enabled(ctx, level) {
			logger.LogAttrs(ctx, level, "lock", attributes(e)...)
		}
	}
}

func attributes(e Event) []slog.Attr {
	list := append(make([]slog.Attr, 0, 8), slog.String("event", string(e.Kind)))
	if len(e.Keys) == 1 {
		list = append(list, slog.String("key", e.Keys[0]))
	} else {
		list = append(list, slog.Any("key", e.Keys))
	}
	if e.Owner != "" {
		list = append(list, slog.String("owner", e.Owner), slog.Int64("fence", int64(e.Fence)))
	}
	if e.Wait > 0 {
		list = append(list, slog.Duration("wait", e.Wait))
	}
	if e.Held > 0 {
		list = append(list, slog.Duration("held", e.Held))
	}
	if e.Err != nil {
		list = append(list, slog.String("err", e.Err.Error()))
	}
	return list
}
