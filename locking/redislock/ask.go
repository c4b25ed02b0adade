package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/locking"
)

//go:embed acquire.lua
var acquireLua string

//go:embed renew.lua
var renewLua string

//go:embed release.lua
var releaseLua string

// scripts are sent by their hash, and in full when the server does not know
// them (it was restarted, or someone ran SCRIPT FLUSH).
type scripts struct{ acquire, renew, release *redis.Script }

func newScripts() scripts {
	return scripts{redis.NewScript(acquireLua), redis.NewScript(renewLua), redis.NewScript(releaseLua)}
}

// ask runs a script and returns its number. It comes back at once when ctx ends
// or patience is over, although the client may go on waiting: a socket read
// hears a deadline, but no cancellation.
func (s *Store) ask(ctx context.Context, script *redis.Script, names []string, args ...any) (int64, error) {
	limited, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	type answer struct {
		n   int64
		err error
	}
	answers := make(chan answer, 1)
	started := s.background.start(func() {
		n, err := script.Run(limited, s.client, names, args...).Int64()
		answers <- answer{n, err}
	})
	if !started {
		return 0, ErrClosed
	}
	select {
	case a := <-answers:
		return a.n, s.classify(ctx, a.err)
	case <-limited.Done():
		return 0, unresolved(ctx, errNoAnswer)
	}
}

// ErrClosed is returned by a Store after its Close.
var ErrClosed = errors.New("redislock: store is closed")

var errNoAnswer = errors.New("no answer in time")

// classify separates what certainly did not happen (the request never left, or
// the server refused it) from what may have happened.
func (s *Store) classify(ctx context.Context, err error) error {
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return fmt.Errorf("%w: %w", ErrHashTag, err)
	case !s.replays && (errors.As(err, &reply) || unsent(err)):
		return plain(ctx, err)
	default: // also with a client that replays: this is the end of its last try, not of its first
		return unresolved(ctx, err)
	}
}

// unsent tells that no byte of the request reached a server.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// unresolved marks err as one that leaves the outcome open. If the caller's ctx
// has ended, that is the reason given.
func unresolved(ctx context.Context, err error) error {
	if errors.Is(err, locking.ErrBusy) {
		return err
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, locking.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, plain(ctx, err))
}

// plain hides that a time-out of ours, or of the client, looks like the end of
// the caller's ctx: errors.Is must say so only when it is.
func plain(ctx context.Context, err error) error {
	foreign := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
	if foreign && ctx.Err() == nil {
		return fmt.Errorf("%w (%v)", errNoAnswer, err)
	}
	return err
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
