package redlock

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

//go:embed renew.lua
var renewLua string

//go:embed release.lua
var releaseLua string

// command is a request to one server. It reports whether the server has done it.
type command func(ctx context.Context, server *redis.Client, l lock) (bool, error)

type commands struct{ acquire, renew, release command }

func newCommands(ttl time.Duration) commands {
	return commands{
		acquire: func(ctx context.Context, server *redis.Client, l lock) (bool, error) {
			return server.SetNX(ctx, l.name, l.owner, ttl).Result() // SET name owner PX ttl NX
		},
		renew:   script(renewLua, ttl.Milliseconds()),
		release: script(releaseLua),
	}
}

// script makes a command of a Lua script, whose arguments are the owner and args.
func script(source string, args ...any) command {
	lua := redis.NewScript(source)
	return func(ctx context.Context, server *redis.Client, l lock) (bool, error) {
		return lua.Run(ctx, server, []string{l.name}, append([]any{l.owner}, args...)...).Bool()
	}
}

// request is a command to all servers at once.
type request struct {
	done  chan struct{} // closed when each server has answered, or its time is over
	votes votes         // valid when done is closed
}

// votes counts the servers by their answers.
type votes struct {
	yes, no int
	failed  int   // they certainly did nothing: not reached, or an error of the server
	unknown int   // no answer
	cause   error // of one that failed or is unknown
}

// ask sends a command to all servers, and does not wait for the answers. The end of the
// caller's ctx does not interrupt a request: undo may need its outcome.
func (s *Store) ask(do command, l lock) *request {
	r := &request{done: make(chan struct{})}
	open := s.resolver.Go(func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(context.Background(), s.requestTimeout)
		defer cancel()
		answers := make(chan answer, len(s.servers))
		for _, server := range s.servers {
			go func() {
				done, err := do(ctx, server, l)
				answers <- answer{done, err}
			}()
		}
		for range s.servers {
			r.votes.count(<-answers)
		}
	})
	if !open {
		r.votes = votes{failed: len(s.servers), cause: ErrClosed}
		close(r.done)
	}
	return r
}

// ErrClosed is returned by a Store after its Close.
var ErrClosed = errors.New("redlock: store is closed")

type answer struct {
	done bool
	err  error
}

func (v *votes) count(a answer) {
	var reply redis.Error
	switch {
	case a.err == nil && a.done:
		v.yes++
	case a.err == nil:
		v.no++
	case errors.As(a.err, &reply), unsent(a.err):
		v.failed++
	default:
		v.unknown++
	}
	if a.err != nil {
		v.cause = a.err
	}
}

// unsent reports whether no byte of the request was sent.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) || errors.Is(err, redis.ErrClosed)
}

// wait returns the votes of all servers. If ctx ends first, the error matches ctx.Err() and
// locking.ErrOutcomeUnknown.
func (r *request) wait(ctx context.Context) (votes, error) {
	select {
	case <-r.done:
		return r.votes, nil
	case <-ctx.Done():
		return votes{}, locking.NoAnswer(ctx, ctx.Err())
	}
}

// noMajority is the error of a request to which too few servers have answered.
func (s *Store) noMajority(ctx context.Context, v votes) error {
	if errors.Is(v.cause, ErrClosed) {
		return ErrClosed
	}
	err := fmt.Errorf("%d of %d servers answered, and %d did not: %w", v.yes+v.no, len(s.servers), v.failed+v.unknown, v.cause)
	if v.unknown > 0 {
		return locking.NoAnswer(ctx, err)
	}
	return locking.MaskTimeout(ctx, err)
}
