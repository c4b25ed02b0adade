// SPDX-License-Identifier: MIT

package driver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"shop/locking"
)

// send makes one request. unlimited is one that waits in a queue.
//
// A driver may not notice the end of ctx while it reads from a socket. While the server answers, that does not matter. If the
// last request had no answer, the driver is called in another goroutine, and send returns at once when ctx ends. (It does not
// always do so, because two switches of goroutine take as long as a round trip.)
//
// A request that is left behind may answer later: what it returns is not shared with send.
func send[T any](s *Store, ctx context.Context, unlimited bool, request func(context.Context) (T, error)) (reply T, err error) {
	if s.back.closed() {
		return reply, locking.ErrClosed
	}
	limited, cancel := ctx, context.CancelFunc(func() {})
	if !unlimited {
		limited, cancel = context.WithTimeout(ctx, s.o.Limit)
	}
	defer cancel()
	if s.silent.Load() && !unlimited {
		type answer struct {
			reply T
			err   error
		}
		answers := make(chan answer, 1)
		if !s.back.run(func() { reply, err := request(limited); answers <- answer{reply, err} }) {
			return reply, locking.ErrClosed
		}
		select {
		case a := <-answers:
			reply, err = a.reply, a.err
		case <-limited.Done():
			err = limited.Err()
			select {
			case a := <-answers: // both may be there
				reply, err = a.reply, a.err
			default:
				if ctx.Err() == nil { // the driver may be about to say that it has sent nothing
					select {
					case a := <-answers:
						reply, err = a.reply, a.err
					case <-time.After(grace):
					}
				}
			}
		}
	} else {
		reply, err = request(limited)
	}
	if !unlimited {
		s.silent.Store(timedOut(err))
	}
	return reply, result(ctx, err)
}

type none struct{}

// grace is how much longer than its limit a request may take to say what it knows.
const grace = 10 * time.Millisecond

// timedOut reports whether err is a time-out, of the Store or of the driver's client.
func timedOut(err error) bool {
	var timer net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.As(err, &timer) && timer.Timeout()
}

// result is the error of a request, for a caller with ctx. It matches locking.ErrOutcomeUnknown if the request may have
// taken effect, and an error of ctx only if that has ended.
func result(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done() // a timer of the driver has fired before the one of ctx
	}
	if errors.Is(err, locking.ErrClosed) {
		return err
	}
	var done *undone
	switch known := errors.As(err, &done); {
	case errors.Is(err, locking.ErrBusy), errors.Is(err, locking.ErrLost), known && !done.unsent:
		return masked(ctx, err)
	case known:
		if end := ctx.Err(); end != nil && !errors.Is(err, end) {
			err = fmt.Errorf("%w: %w", end, err)
		}
		err = masked(ctx, err)
		if !done.anew {
			err = fmt.Errorf("no connection: %w", err)
		}
		return &undone{err, true, done.again, done.anew} // the mask has removed it
	}
	return NoAnswer(ctx, err)
}

// NoAnswer wraps err in locking.ErrOutcomeUnknown, unless it matches that already. If ctx has ended, its error replaces err.
func NoAnswer(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, locking.ErrOutcomeUnknown) {
		return err
	}
	return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, masked(ctx, err))
}

// masked keeps a time-out of a driver from matching the errors of a ctx that has not ended.
func masked(ctx context.Context, err error) error {
	if ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		text := fmt.Sprintf("no answer in time (%v)", err)
		for _, kind := range []error{locking.ErrBusy, locking.ErrLost} {
			if errors.Is(err, kind) {
				return locking.Like(kind, errors.New(text))
			}
		}
		return errors.New(text)
	}
	return err
}
