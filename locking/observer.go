package locking

import "time"

// Kind says what happened to a lock.
type Kind string

// The kinds of Event. Each Acquired of Do is followed by exactly one Released or
// Left, and before that by at most one Lost.
const (
	Attempt  Kind = "attempt"   // the store is asked
	Busy     Kind = "busy"      // … and someone else has a key
	Acquired Kind = "acquired"  // … and granted
	TimedOut Kind = "timed_out" // ctx ended before a grant
	Failed   Kind = "failed"    // the store gave no answer, to acquire or renew; Err
	Renewed  Kind = "renewed"   // the trust goes on
	Lost     Kind = "lost"      // the trust is over while fn runs, or was when it returned; Err is the cause
	Released Kind = "released"  // fn returned, the keys are free
	Left     Kind = "left"      // fn returned, the keys were not given back: lost before, no answer, or left to run out on purpose; Err
)

// Event is what an Observer is told.
type Event struct {
	Kind  Kind
	Keys  []string // not to be changed
	Owner string
	Fence Fence
	Wait  time.Duration // from the first attempt
	Held  time.Duration // since the grant
	Err   error
}

// Observer is told of each event, in the goroutine in which it happened: it must
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
