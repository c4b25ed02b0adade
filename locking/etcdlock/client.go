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

// Config is what a client for locks needs; add TLS, a user, a Logger:
//
//	client, err := clientv3.New(etcdlock.Config("127.0.0.1:2379"))
//
// A connection that died in silence is given up after 15 s: a watch would wait
// on it for ever. (Pings more often than every 10 s are not sent by gRPC, and
// more often than every 5 s not taken by etcd.) The client does not connect yet.
func Config(endpoints ...string) clientv3.Config {
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          2 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
	}
}

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

// reconnect lets the client try again to connect now: its own pause between two
// tries grows to two minutes.
func (s *Store) reconnect() { s.client.ActiveConnection().ResetConnectBackoff() }

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

// ErrNoSpace is returned while etcd's database is as large as its quota: etcd then
// takes no writes, until an operator makes room. Nothing was acquired. Leases that
// were granted before can be renewed and released, neither of which needs space.
var ErrNoSpace = errors.New("etcd is full and takes no writes: compact and defrag it (with etcdctl, each member), " +
	"raise --quota-backend-bytes if that frees too little, then etcdctl alarm disarm; let it compact by itself with --auto-compaction-retention")

var (
	errNoAnswer = errors.New("no answer in time")
	errUndone   = fmt.Errorf("%w; what was asked for is undone", errNoAnswer)
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
