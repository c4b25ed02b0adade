// SPDX-License-Identifier: MIT

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
	"shop/locking/driver"
)

// errClosed is the error of a Store whose client is closed.
var errClosed = locking.Like(locking.ErrClosed, errors.New("the client of etcd is closed"))

// ErrNoSpace is returned while etcd's database is as large as its quota: etcd then
// accepts no writes until an operator frees space. Nothing was acquired. Leases that
// were granted before can be renewed and released, neither of which needs space.
//
// etcd checks the space when a request arrives and again when it applies it. If the second check fails, it applies the
// request all the same, raises the alarm, and answers that there is no space.
var ErrNoSpace = errors.New("etcd is full and accepts no writes: compact and defrag it (with etcdctl, each member), " +
	"raise --quota-backend-bytes if that frees too little, then run etcdctl alarm disarm; --auto-compaction-retention makes it compact automatically")

// limit is how long a request waits for its answer: its commit may wait for a disk.
func limit(ttl time.Duration) time.Duration { return ttl / 4 }

// within limits one request of a wait, which itself has no limit. A member without a leader refuses it instead of delaying it: the
// error then means that nothing happened.
func (d *locks) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(ctx), limit(d.ttl))
}

// classify returns the error of a request as a driver.Driver must.
func (d *locks) classify(ctx context.Context, err error) error {
	switch code := status.Code(err); {
	case err == nil:
		return nil
	case d.client.Ctx().Err() != nil:
		return errClosed
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return locking.ErrLost
	case errors.Is(err, rpctypes.ErrNoSpace): // of a lease, or of a release, which is repeated
		return driver.Refused(fmt.Errorf("%w: %w", ErrNoSpace, err))
	case passes(err):
		return driver.Again(err)
	case refused(err):
		return driver.Refused(err)
	case ctx.Err() != nil && d.client.ActiveConnection().GetState() != connectivity.Ready:
		// The client waits for a connection before it sends. If it had sent the request, and the connection had broken, the
		// error would be another one.
		d.client.ActiveConnection().ResetConnectBackoff() // its own pause between two attempts grows to two minutes
		return driver.Unsent(d.why(ctx))
	case code == codes.DeadlineExceeded, code == codes.Canceled: // of gRPC
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// why returns why there is no connection.
func (d *locks) why(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) { // the caller has left
		return ctx.Err()
	}
	if err := d.reach(context.WithoutCancel(ctx), limit(d.ttl)/4); err != nil {
		return err
	}
	return ctx.Err()
}

// reach returns an error with the cause if etcd cannot be reached. Its request does not wait for a connection, as all
// others do.
func (d *locks) reach(ctx context.Context, limit time.Duration) error {
	limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
	defer cancel()
	read := &pb.RangeRequest{Key: []byte(epochKey(d.prefix)), CountOnly: true}
	_, err := pb.NewKVClient(d.client.ActiveConnection()).Range(limited, read, grpc.WaitForReady(false))
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return fmt.Errorf("no answer from etcd at %q: %w", d.client.Endpoints(), err)
	}
	return nil // the next request returns any other error
}

// passes reports whether a member refused a request because it has no leader (see clientv3.WithRequireLeader), or is too far behind.
func passes(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) || errors.Is(err, rpctypes.ErrTooManyRequests)
}

// refused reports whether err is an answer of etcd that means that nothing was done.
// These are the errors that etcd detects before it changes anything: in the request,
// in the sender's permissions, in the lease, or because the member has no leader or is
// too far behind. After any other error the request may have taken effect, for example
// after "Unavailable": the leader's proposal may be committed although the leader is gone.
func refused(err error) bool {
	if passes(err) {
		return true
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
