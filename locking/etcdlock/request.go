package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"shop/locking"
)

// requestTimeout bounds the wait for one answer: three fit into a TTL.
func requestTimeout(ttl time.Duration) time.Duration { return ttl / 3 }

// within bounds one request. WithRequireLeader makes a member without a leader refuse
// the request instead of delaying it: the error then means that nothing happened.
//
// It uses a timer and not a deadline. gRPC would send a deadline to the server, which
// would start a timer as well, at a fiftieth of the cost of a request.
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

// under returns a ctx that also ends with life, and then has the cause why.
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

// reconnect makes the client connect at once: its own pause between two attempts grows
// to two minutes.
func (s *Store) reconnect() { s.client.ActiveConnection().ResetConnectBackoff() }

// describe adds to an error what failed.
func describe(err *error, operation string, keys []string) {
	if *err != nil {
		*err = fmt.Errorf("etcdlock: %s %q: %w", operation, keys, *err)
	}
}

// ErrNoSpace is returned while etcd's database is as large as its quota: etcd then
// accepts no writes until an operator frees space. Nothing was acquired. Leases that
// were granted before can be renewed and released, neither of which needs space.
var ErrNoSpace = errors.New("etcd is full and accepts no writes: compact and defrag it (with etcdctl, each member), " +
	"raise --quota-backend-bytes if that frees too little, then run etcdctl alarm disarm; --auto-compaction-retention makes it compact automatically")

var (
	errNoAnswer = errors.New("no answer in time")
	// errUnsent reports a request that was not sent.
	errUnsent = errors.New("etcdlock: not sent")
)

// explain replaces a time-out by its cause if the client has no connection: then it has not sent the request. If it had, and
// the connection broke, the error would be another one.
func (s *Store) explain(ctx context.Context, err error) error {
	if !errors.Is(err, errNoAnswer) || s.client.ActiveConnection().GetState() == connectivity.Ready {
		return err
	}
	if why := s.reach(ctx, requestTimeout(s.ttl)/8); why != nil {
		return locking.Like(errUnsent, locking.Unsent(ctx, why))
	}
	return err
}

// silent reports whether the attempt that failed with err may have left something. An error that matches errUnsent is
// one of these: the client sends a request again in some cases, and tells only of the last time.
func silent(err error) bool {
	return errors.Is(err, locking.ErrOutcomeUnknown) || errors.Is(err, errUnsent)
}

// reach returns an error with the cause if etcd cannot be reached. Its request does not wait for a connection, as all
// others do.
func (s *Store) reach(ctx context.Context, limit time.Duration) error {
	limited, cancel := within(ctx, limit)
	defer cancel()
	read := &pb.RangeRequest{Key: []byte(epochKey(s.prefix)), CountOnly: true}
	_, err := pb.NewKVClient(s.client.ActiveConnection()).Range(limited, read, grpc.WaitForReady(false))
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return fmt.Errorf("no answer from etcd at %q: %w", s.client.Endpoints(), maskTimeout(ctx, err))
	}
	return nil // the next request returns any other error
}

// classify wraps the error of a request that may have taken effect in
// locking.ErrOutcomeUnknown. ctx is the caller's, not the one that bounds the request.
//
// ErrNoSpace is an answer, so the request cannot arrive later. But it may have been
// applied: etcd checks the space when a request arrives and again when it applies it.
// If the second check fails, etcd applies the request all the same, raises the alarm,
// and answers that there is no space.
func (s *Store) classify(ctx context.Context, err error) error {
	if err == nil || refused(err) {
		return err
	}
	if err = s.explain(ctx, maskTimeout(ctx, err)); errors.Is(err, ErrNoSpace) || errors.Is(err, errUnsent) {
		return err
	}
	return fmt.Errorf("%w: %w", locking.ErrOutcomeUnknown, err)
}

// refused reports whether err is an answer of etcd that means that nothing was done.
// These are the errors that etcd detects before it changes anything: in the request,
// in the sender's permissions, in the lease, or because the member has no leader or is
// too far behind. After any other error the request may have taken effect, for example
// after "Unavailable": the leader's proposal may be committed although the leader is gone.
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

// maskTimeout returns ctx's error if ctx has ended. It replaces an error that only looks
// like it: a time-out of this package is not the end of the caller's ctx.
func maskTimeout(ctx context.Context, err error) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		<-ctx.Done() // gRPC's timer fired before the one of ctx
	}
	switch code := status.Code(err); {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	case ctx.Err() != nil:
		return ended(ctx)
	case code == codes.DeadlineExceeded, code == codes.Canceled,
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("%w (%v)", errNoAnswer, err)
	}
	return err
}

// ended returns why ctx ended: its error, and the cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) || errors.Is(cause, ErrClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// left returns the error of a request that has left its queue because ctx ended.
func left(ctx context.Context) error { return fmt.Errorf("%w: %w", locking.ErrBusy, ended(ctx)) }
