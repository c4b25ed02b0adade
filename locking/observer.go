// SPDX-License-Identifier: MIT

package locking

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

// Kind is the kind of an Event.
type Kind string

// The kinds of Event. Each Acquired of Do is followed by exactly one Released or
// Left, and before that by at most one Lost.
//
// There is none for a fence that a guard refused: the guard runs in the resource, without
// a Store. The caller that gets ErrStale counts it.
const (
	Attempt     Kind = "attempt"      // a request to acquire is sent
	Busy        Kind = "busy"         // … and another holder has a key
	Acquired    Kind = "acquired"     // … and the keys are granted
	TimedOut    Kind = "timed_out"    // ctx or MaxWait ended before a grant
	Failed      Kind = "failed"       // … or the store failed, or did not answer; Err
	Renewed     Kind = "renewed"      // the store has confirmed the lease
	RenewFailed Kind = "renew_failed" // … or failed, or did not answer: a later attempt may succeed; Err
	Lost        Kind = "lost"         // the trust ended while fn ran, or was over when it returned; Err is the cause
	Released    Kind = "released"     // fn returned, the keys are free
	Left        Kind = "left"         // fn returned, the keys were not freed: lost, no answer, or left to expire on purpose; Err
)

// Event is what an Observer receives.
type Event struct {
	Ctx   context.Context // of the caller, for its values, such as those of a trace
	Kind  Kind
	Keys  []string // must not be modified
	Owner string
	Fence Fence
	Wait  time.Duration // from the first attempt; Renewed: since the renewal was due
	Held  time.Duration // since the grant
	Err   error
}

// Observer receives each event, in the goroutine in which it happened: it must
// be safe for concurrent use, and must not block, because a renewal may be waiting.
type Observer func(Event)

// Observers returns an Observer that calls each of list, in order. It skips nil ones,
// and is nil if all are nil.
func Observers(list ...Observer) Observer {
	all := slices.DeleteFunc(slices.Clone(list), func(o Observer) bool { return o == nil })
	if len(all) == 0 {
		return nil
	}
	return func(e Event) {
		for _, o := range all {
			o(e)
		}
	}
}

// Log returns an Observer that logs one structured line for each event: event, key,
// owner, fence, wait, held, err, each if it is set. A handler gets the event's Ctx. TimedOut, Failed, RenewFailed,
// Lost and Left are logged at warn level, all other events at debug.
func Log(logger *slog.Logger) Observer {
	return func(e Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case TimedOut, Failed, RenewFailed, Lost, Left:
			level = slog.LevelWarn
		}
		ctx := cmp.Or(e.Ctx, context.Background())
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

func (h *hold) notify(kind Kind, wait time.Duration, err error) {
	if h.opts.Observer != nil {
		h.opts.Observer(Event{
			Ctx: h.Context, Kind: kind, Keys: h.lease.Keys, Owner: h.lease.Owner, Fence: h.lease.Fence,
			Wait: wait, Held: time.Since(h.granted), Err: err,
		})
	}
}
