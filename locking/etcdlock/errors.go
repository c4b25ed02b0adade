package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shop/locking"
)

// ErrClosed is returned by a Store after its Close.
var ErrClosed = errors.New("etcdlock: store is closed")

var (
	errNoAnswer = errors.New("no answer in time")
	errUndone   = fmt.Errorf("%w; what was asked for is undone", errNoAnswer)
	errRevoked  = fmt.Errorf("%w: etcd does not know the session's lease any more", locking.ErrLost)
	errUnheard  = fmt.Errorf("%w: no keep-alive was answered for the TTL", locking.ErrLost)
	errTraces   = fmt.Errorf("%w: session given up: what an attempt may have left could not be removed", locking.ErrLost)
)

// classify separates what certainly did not happen (etcd refused it) from what
// may have happened. ctx is the caller's, and not the one that bounds the request.
func classify(ctx context.Context, err error) error {
	if err == nil || refused(err) {
		return err
	}
	return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, plain(ctx, err))
}

// refused tells that err is etcd's answer, and says that nothing was done.
// "Unavailable" is no such answer: the leader may be gone, and its proposal not.
func refused(err error) bool {
	var answer rpctypes.EtcdError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code() {
	case codes.Unavailable:
		return errors.Is(err, rpctypes.ErrNoLeader) // refused at the door, see WithRequireLeader
	case codes.Canceled, codes.DeadlineExceeded, codes.Unknown, codes.Internal, codes.DataLoss:
		return false
	}
	return true
}

// plain says ctx's error if ctx has ended, and hides what only looks like it: a
// time-out of ours is not the end of the caller's ctx.
func plain(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done() // gRPC's timer was faster than that of ctx
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Canceled ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return errNoAnswer
	}
	return err
}

// ended is why ctx has: its error, and the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) || errors.Is(cause, ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
