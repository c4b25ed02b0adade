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

// scripts are sent by their hash, and in full if the server does not have them
// (after a restart or a SCRIPT FLUSH).
type scripts struct{ acquire, renew, release *redis.Script }

func newScripts() scripts {
	return scripts{redis.NewScript(acquireLua), redis.NewScript(renewLua), redis.NewScript(releaseLua)}
}

// send runs a script and returns its number. It waits for requestTimeout at most.
//
// A socket read observes the deadline of ctx, but not its cancellation. While the
// server answers, that does not matter: the answer arrives within a millisecond. If
// the last request had no answer, another goroutine reads, so that send returns at
// once when ctx ends. (It does not always do so, because that would double the time
// of a request: two switches of goroutine take as long as the round trip to the
// server.)
func (s *Store) send(ctx context.Context, script *redis.Script, names []string, args ...any) (int64, error) {
	if s.resolver.Closed() {
		return 0, ErrClosed
	}
	limited, cancel := context.WithTimeout(ctx, s.requestTimeout)
	defer cancel()
	run := func() answer {
		n, err := script.Run(limited, once{s.client}, names, args...).Int64()
		return answer{n, err}
	}
	var a answer
	if s.silent.Load() {
		a = s.aside(limited, run)
	} else {
		a = run()
	}
	s.silent.Store(timedOut(a.err))
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done() // the socket's timer fired before the one of ctx
	}
	return a.n, s.classify(ctx, a.err)
}

// once never sends a script again that a server may have run. By itself, a client of a
// Cluster sends a request again whose connection broke. Of a release sent twice, the
// second finds nothing, and the Store would report a lost lease.
type once struct{ redis.UniversalClient }

func (c once) EvalSha(ctx context.Context, hash string, names []string, args ...any) *redis.Cmd {
	return c.run(ctx, "evalsha", hash, names, args)
}

func (c once) Eval(ctx context.Context, script string, names []string, args ...any) *redis.Cmd {
	return c.run(ctx, "eval", script, names, args)
}

func (c once) run(ctx context.Context, command, script string, names []string, args []any) *redis.Cmd {
	words := append(make([]any, 0, 3+len(names)+len(args)), command, script, len(names))
	for _, name := range names {
		words = append(words, name)
	}
	cmd := redis.NewCmd(ctx, append(words, args...)...)
	_ = c.Process(ctx, unrepeated{cmd}) // the error is in cmd
	return cmd
}

// unrepeated is a command that the client does not send again.
type unrepeated struct{ *redis.Cmd }

func (unrepeated) NoRetry() bool { return true }

// timedOut reports whether err is a time-out, of send or of the client.
func timedOut(err error) bool {
	var timer net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &timer) && timer.Timeout()
}

type answer struct {
	n   int64
	err error
}

// aside runs a request in another goroutine, and waits for it until ctx ends.
func (s *Store) aside(ctx context.Context, run func() answer) answer {
	answers := make(chan answer, 1)
	if !s.resolver.Go(func() { answers <- run() }) {
		return answer{err: ErrClosed}
	}
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		return answer{err: ctx.Err()}
	}
}

// ErrClosed is returned by a Store after its Close.
var ErrClosed = errors.New("redislock: store is closed")

// classify returns ErrOutcomeUnknown for a request that may have taken effect. A request
// that was never sent, or that the server refused, certainly did not.
func (s *Store) classify(ctx context.Context, err error) error {
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case redis.HasErrorPrefix(err, "CROSSSLOT"):
		return fmt.Errorf("%w: %w", ErrHashTag, err)
	case errors.As(err, &reply):
		return locking.MaskTimeout(ctx, err)
	case unsent(err):
		return locking.Unsent(ctx, err)
	default:
		return locking.NoAnswer(ctx, err)
	}
}

// unsent reports whether no byte of the request was sent.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}
