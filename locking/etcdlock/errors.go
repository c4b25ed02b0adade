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

// ErrNoSpace is returned while etcd's database is as large as its quota: etcd then
// takes no writes, until an operator makes room. Nothing was acquired. Leases that
// were granted before can be renewed and released, neither of which needs space.
var ErrNoSpace = errors.New("etcd is full and takes no writes: compact and defrag it (with etcdctl, each member), " +
	"raise --quota-backend-bytes if that frees too little, then etcdctl alarm disarm; let it compact by itself with --auto-compaction-retention")

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
	switch {
	case err == nil, refused(err):
		return err
	case errors.Is(err, rpctypes.ErrNoSpace):
		return noSpace(err)
	}
	return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, plain(ctx, err))
}

// noSpace is an answer, so that nothing of the request can arrive later. But the
// request may have been applied: etcd looks for space when a request arrives and
// again when it applies it, and the second time it applies it all the same, raises
// the alarm, and answers that there is no space.
func noSpace(err error) error { return fmt.Errorf("%w: %w", ErrNoSpace, err) }

// refused tells that err is etcd's answer, and says that nothing was done. These
// are the errors that etcd finds before it changes anything: in the request itself,
// in the rights of its sender, in the lease, or at the door of a member that knows
// of no leader or is too far behind. Whatever is not in this list may have happened.
// "Unavailable" for one: the leader may be gone, and its proposal not.
func refused(err error) bool {
	if errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrTooManyRequests) {
		return true // see WithRequireLeader
	}
	var answer rpctypes.EtcdError
	if !errors.As(err, &answer) {
		return false
	}
	switch answer.Code() {
	case codes.InvalidArgument, codes.OutOfRange, // the request
		codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition, // the sender
		codes.NotFound: // the lease
		return true
	}
	return false
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
	if errors.Is(err, rpctypes.ErrNoSpace) {
		return noSpace(err)
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
