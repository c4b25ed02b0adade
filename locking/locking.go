// SPDX-License-Identifier: MIT

package locking

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Fence is a number that a Store hands out with each grant, greater than every
// earlier Fence of each of the lease's keys. 0 means that the store cannot fence.
type Fence int64

// Lease describes what was granted. It is plain data, and proves nothing after Until.
type Lease struct {
	Keys  []string  // usually one; several are held all or none
	Owner string    // unique to each acquisition
	Fence Fence     // 0: the store cannot fence
	Until time.Time // do not trust the lease after this (monotonic); zero: it holds as long as its connection does
}

// Store is a lock service. A Store is made with its TTL (redislock.New(client, ttl, …)).
// It is safe for concurrent use. Each method returns when its ctx ends.
//
// Keys are checked and put in order with SortedKeys. Until is the time before the
// request that last set the TTL at the server, plus the TTL, less a margin.
type Store interface {
	// TryAcquire takes all keys or none. ErrBusy: another holder has one of them.
	TryAcquire(ctx context.Context, keys ...string) (Lease, error)
	// Renew restarts the TTL. ErrLost is final, and a lost lease is never taken
	// again; any other error may be retried. Only Until of the lease changes.
	Renew(ctx context.Context, l Lease) (Lease, error)
	// Release frees the keys. ErrLost: l was no longer held.
	Release(ctx context.Context, l Lease) error
}

// Waiter is a Store with a wait of its own: a queue, a watch, a blocking call, or one request of each process that
// polls (Line). When ctx ends, the error matches ctx.Err(), and ErrBusy too if the request
// was in the queue; the request leaves nothing behind there.
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
	// ErrClosed is returned by a Store after its Close.
	ErrClosed = errors.New("locking: the store is closed")
	// ErrTTL reports a TTL that the server would round, or that is too short for it.
	ErrTTL = errors.New("locking: this TTL is not possible, and is not rounded")
	// ErrSeveralKeys reports a request for more keys in one lease than the store can take at once.
	ErrSeveralKeys = errors.New("locking: too many keys for one lease")
	// ErrUnfenced reports a guard without a fence, which would guard nothing.
	ErrUnfenced = errors.New("locking: a guard needs a fence")
	ErrNoClient = errors.New("locking: no client: a Store needs one, or a pool, and got")
	// ErrNested reports that ctx already holds the key in this Store: see Nested.
	ErrNested = errors.New("locking: Do inside Do: this ctx holds the key already, and would wait for itself")
)

// Like returns err as an error that matches kind too, without the text of kind: a server that is down is treated like
// ErrBusy, and no other holder has a key.
func Like(kind, err error) error { return &alike{err, kind} }

type alike struct {
	error
	kind error
}

func (e *alike) Unwrap() []error { return []error{e.error, e.kind} }

// ErrMaxHold is the cause of fn's ctx after Options.MaxHold, with its value. It matches ErrLost too,
// because the lease is no longer renewed. To distinguish them, check for ErrMaxHold first.
var ErrMaxHold = Like(ErrLost, errors.New("locking: fn ran for longer than Options.MaxHold"))

// ended returns why ctx ended: errors.Is finds ctx.Err() and the cause. A lost lease is
// the exception: its error does not match ctx.Err(), which would mean that the
// caller has left.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) || errors.Is(cause, ErrLost) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// CheckClient returns ErrNoClient, with the type, if client is nil, or an interface with a nil pointer in it.
func CheckClient(client any) error {
	if v := reflect.ValueOf(client); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Errorf("%w %#v", ErrNoClient, client)
	}
	return nil
}

// KeyMax is the longest key, in bytes.
const KeyMax = 512

// CheckKeys returns an error that matches ErrKey and names the key, unless there is at
// least one key and each is valid. The rule is the strictest of all backends, so that a
// valid key is valid in every store.
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

// SortedKeys checks keys and returns a sorted copy without duplicates. A Store takes
// the keys in that order and puts them into the Lease. The order prevents two requests
// for the same keys from waiting for each other. Duplicates are removed, because a
// caller that names a key twice would find it held by its own lock.
func SortedKeys(keys []string) ([]string, error) {
	if err := CheckKeys(keys); err != nil {
		return nil, err
	}
	return slices.Compact(slices.Sorted(slices.Values(keys))), nil
}
