package locking

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Fence is a number that a Store hands out with each grant, greater than every
// earlier Fence of each of the lease's keys. 0 means that the store cannot fence.
type Fence int64

// Lease says what was granted. It is plain data: it may be copied, logged and
// sent, and holding one proves nothing after Until.
type Lease struct {
	Keys  []string  // usually one; several are held all or none
	Owner string    // random for each acquisition
	Fence Fence     // 0: the store cannot fence
	Until time.Time // do not trust the lease after this (monotonic); zero: it holds as long as its connection does
}

// Store is a lock service. A Store is made with its TTL (redislock.New(client, ttl, …)).
// It is safe for concurrent use. Each method returns when its ctx ends.
//
// Keys are checked and put in order with SortedKeys. Until counts from before the
// request that last set the TTL at the server, less a margin.
type Store interface {
	// TryAcquire takes all keys or none. ErrBusy: another holder has one of them.
	TryAcquire(ctx context.Context, keys ...string) (Lease, error)
	// Renew sets the TTL anew. ErrLost is final, and a lost lease is never taken
	// again; any other error may be retried. Only Until of the lease changes.
	Renew(ctx context.Context, l Lease) (Lease, error)
	// Release gives the keys back. ErrLost: the lease was not ours any more.
	Release(ctx context.Context, l Lease) error
}

// Waiter is a Store that waits better than by asking again (queue, watch, blocking
// call). When ctx ends, the error matches ctx.Err(), and ErrBusy too if it was
// in the queue; and no trace of it stays there.
type Waiter interface {
	Acquire(ctx context.Context, keys ...string) (Lease, error)
}

// The errors of every Store. Match them with errors.Is.
var (
	ErrBusy           = errors.New("locking: busy: another holder has the key")
	ErrLost           = errors.New("locking: lease lost")
	ErrStale          = errors.New("locking: fence is stale: a newer holder has written")
	ErrKey            = errors.New("locking: a key must be valid UTF-8 without NUL, 1 to 512 bytes")
	ErrOutcomeUnknown = errors.New("locking: outcome unknown: the request was sent, no answer came")
)

// ErrMaxHold is the cause that ends fn's ctx after Options.MaxHold. It matches
// ErrLost too: nothing renews the lease any more, so that code that handles a lost
// lease handles this one in the same way. To distinguish them, check for ErrMaxHold
// first.
var ErrMaxHold = fmt.Errorf("%w: held for the longest time allowed", ErrLost)

// ended says why ctx ended: errors.Is finds ctx.Err() and the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// gone is ended for a ctx of Do. The error of a lost lease does not match ctx.Err(),
// which would mean that the caller has gone away.
func gone(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) {
		return cause
	}
	return ended(ctx)
}

// KeyMax is the longest key, in bytes.
const KeyMax = 512

// CheckKeys returns ErrKey, and which key, unless there is at least one key and
// each is valid UTF-8 without NUL, 1 to KeyMax bytes long. The narrowest rule
// that all backends can keep, so that a key that is good here is good everywhere.
func CheckKeys(keys []string) error {
	if len(keys) == 0 {
		return fmt.Errorf("%w: none was given", ErrKey)
	}
	for _, key := range keys {
		switch {
		case key == "":
			return fmt.Errorf("%w: empty", ErrKey)
		case len(key) > KeyMax:
			return fmt.Errorf("%w: %d bytes: %.32q…", ErrKey, len(key), key)
		case !utf8.ValidString(key), strings.ContainsRune(key, 0):
			return fmt.Errorf("%w: %q", ErrKey, key)
		}
	}
	return nil
}

// SortedKeys checks keys and returns them as a set, for a Store to take them in
// that order and to put into the Lease: in byte order, the same for every request, so
// that two requests for the same keys cannot wait for each other; and each key once,
// because a caller that derives keys from its data may well name one twice, and must
// not be busy by its own lock. The result is a copy.
func SortedKeys(keys []string) ([]string, error) {
	if err := CheckKeys(keys); err != nil {
		return nil, err
	}
	sorted := slices.Clone(keys)
	slices.Sort(sorted)
	return slices.Compact(sorted), nil
}

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
