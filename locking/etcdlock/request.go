package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"shop/locking"
)

// requestTimeout is how long one answer is waited for: three fit into a TTL.
func requestTimeout(ttl time.Duration) time.Duration { return ttl / 3 }

// within bounds one request. A member that knows of no leader is to say so,
// instead of holding the request back: the error then means that nothing happened.
//
// It is a timer and not a deadline, which gRPC would send along for the server
// to keep a timer as well, at a fiftieth of the cost of a request.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	timer := time.AfterFunc(d, cancel)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// txn makes one transaction.
func (s *Store) txn(ctx context.Context, conditions []clientv3.Cmp, then []clientv3.Op,
	otherwise ...clientv3.Op,
) (*clientv3.TxnResponse, error) {
	limited, cancel := within(ctx, requestTimeout(s.ttl))
	defer cancel()
	return s.client.Txn(limited).If(conditions...).Then(then...).Else(otherwise...).Commit()
}

// under is ctx, which ends with life too, and then because of why.
func under(ctx, life context.Context, why error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(life, func() { cancel(why) })
	if life.Err() != nil {
		cancel(why)
	}
	return ctx, func() { stop(); cancel(nil) }
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// reconnect lets the client try again to connect now: its own pause between two
// tries grows to two minutes.
func (s *Store) reconnect() { s.client.ActiveConnection().ResetConnectBackoff() }

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("etcdlock: %s %q: %w", operation, keys, *err)
	}
}

// ErrNoSpace is returned while etcd's database is as large as its quota: etcd then
// takes no writes, until an operator makes room. Nothing was acquired. Leases that
// were granted before can be renewed and released, neither of which needs space.
var ErrNoSpace = errors.New("etcd is full and takes no writes: compact and defrag it (with etcdctl, each member), " +
	"raise --quota-backend-bytes if that frees too little, then etcdctl alarm disarm; let it compact by itself with --auto-compaction-retention")

var errNoAnswer = errors.New("no answer in time")

// classify marks what may have happened as locking.ErrOutcomeUnknown. ctx is the
// caller's, and not the one that bounds the request.
//
// ErrNoSpace is an answer, so that nothing of the request can arrive later. But the
// request may have been applied: etcd looks for space when a request arrives and
// again when it applies it, and the second time it applies it all the same, raises
// the alarm, and answers that there is no space.
func classify(ctx context.Context, err error) error {
	if err == nil || refused(err) {
		return err
	}
	if err = maskTimeout(ctx, err); errors.Is(err, ErrNoSpace) {
		return err
	}
	return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, err)
}

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

// maskTimeout says ctx's error if ctx has ended, and hides what only looks like it: a
// time-out of ours is not the end of the caller's ctx.
func maskTimeout(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done() // gRPC's timer was faster than that of ctx
	}
	switch code := status.Code(err); {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case ctx.Err() != nil:
		return ended(ctx)
	case code == codes.DeadlineExceeded, code == codes.Canceled,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
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

// left is why a request has left the queue that it stood in.
func left(ctx context.Context) error { return fmt.Errorf("%w: %w", locking.ErrBusy, ended(ctx)) }
