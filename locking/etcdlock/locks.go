// SPDX-License-Identifier: MIT

package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/driver"
)

// locks is a driver.Driver.
type locks struct {
	client    *clientv3.Client
	prefix    string
	ttl       time.Duration
	epoch     epoch
	sameEpoch clientv3.Cmp // the condition that etcd still has its value, in each transaction: it costs no request

	mu   sync.Mutex
	free []*lease            // which no owner has
	left map[string][]*lease // by owner: those of requests to take keys that may have put a waiter, or may still do so
}

// Check refuses a request after Close of the client, which would repeat it until its time-out.
func (d *locks) Check(context.Context) error {
	if d.client.Ctx().Err() != nil {
		return errClosed
	}
	return nil
}

// Take puts a waiter into the queue of each key, in one transaction. Its revision is its position in all of them, and the
// fence of the grant. Without wait it does so only if all queues are empty.
func (d *locks) Take(ctx context.Context, keys []string, owner string, wait bool) (driver.Grant, error) {
	if len(keys) > KeysMax {
		return driver.Grant{}, driver.Refused(fmt.Errorf("%w: %d", ErrTooManyKeys, len(keys)))
	}
	if _, err := d.withdraw(ctx, owner); err != nil {
		return driver.Grant{}, err
	}
	l, err := d.lease(ctx)
	if err != nil {
		return driver.Grant{}, err
	}
	d.mu.Lock()
	d.left[owner] = append(d.left[owner], l)
	d.mu.Unlock()
	w := &waiter{locks: d, lease: l, keys: keys}
	err = w.enter(ctx, wait)
	if err == nil && ctx.Err() != nil { // perhaps its caller has left
		err = ctx.Err()
	} else if err == nil || w.none {
		d.settle(owner, l)
	}
	grant := driver.Grant{Fence: locking.Fence(w.fence), Mark: mark(l.id, w.fence), Until: l.until}
	if w.none {
		d.keepFree(l) // the next owner may have it at once
	}
	return grant, err
}

// settle notes that nothing is left of a request of owner, or that its outcome is known.
func (d *locks) settle(owner string, l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := slices.DeleteFunc(d.left[owner], func(other *lease) bool { return other == l })
	if d.left[owner] = rest; len(rest) == 0 {
		delete(d.left, owner)
	}
}

// withdraw undoes earlier requests of owner without an answer. etcd deletes its waiters, and refuses a request if it
// arrives later: its lease is gone. False: there was none.
func (d *locks) withdraw(ctx context.Context, owner string) (was bool, _ error) {
	d.mu.Lock()
	left := slices.Clone(d.left[owner])
	d.mu.Unlock()
	for _, l := range left {
		if err := d.revoke(ctx, l.id); err != nil {
			return true, err
		}
		d.settle(owner, l)
	}
	return len(left) > 0, nil
}

// Keep checks that the lease has all keys, and then begins its TTL again. If it has lost one, the others are deleted.
func (d *locks) Keep(ctx context.Context, l locking.Lease) error {
	id, fence, ok := marked(l.Owner)
	if !ok || fence != int64(l.Fence) {
		return locking.ErrLost
	}
	// etcd answers a transaction of comparisons alone from the member's own data, which
	// may be old. The read makes it linearizable.
	look := clientv3.OpGet(d.name(l.Keys[0], id), clientv3.WithCountOnly())
	if held, err := d.ifHeld(ctx, l.Keys, id, fence, []clientv3.Op{look}, d.sameEpoch); err != nil || !held {
		return cmp.Or(err, locking.ErrLost)
	}
	_, err := d.client.KeepAliveOnce(ctx, id) // no WithRequireLeader: if a member without a leader refuses, this retries in a busy loop
	return d.classify(ctx, err)
}

// Free deletes the waiters of a lease. The lease of etcd that they had is free for the next owner: all of its requests are answered.
func (d *locks) Free(ctx context.Context, l locking.Lease) error {
	id, fence, ok := marked(l.Owner)
	if !ok {
		was, err := d.withdraw(ctx, l.Owner)
		if !was {
			err = locking.ErrLost
		}
		return err
	}
	if l.Fence != 0 && fence != int64(l.Fence) {
		return locking.ErrLost
	}
	var deletes []clientv3.Op
	for _, k := range l.Keys {
		deletes = append(deletes, clientv3.OpDelete(d.name(k, id)))
	}
	held, err := d.ifHeld(ctx, l.Keys, id, fence, deletes)
	if err != nil || !held {
		return cmp.Or(err, locking.ErrLost)
	}
	if l.Until != l.Until.Round(0) { // it has a monotonic reading, and so is of this process
		d.keepFree(&lease{id, l.Until})
	}
	return nil
}

// ifHeld makes one transaction: then, if the grant with this fence still has all keys. Otherwise it deletes those that it has.
// Each deletion has a condition of its own, because the next owner of the lease in etcd has the same names.
func (d *locks) ifHeld(ctx context.Context, keys []string, id clientv3.LeaseID, fence int64, then []clientv3.Op, more ...clientv3.Cmp) (held bool, _ error) {
	if d.client.Ctx().Err() != nil {
		return false, errClosed
	}
	conditions := more
	var rest []clientv3.Op
	for _, k := range keys {
		name := d.name(k, id)
		mine := clientv3.Compare(clientv3.CreateRevision(name), "=", fence)
		conditions = append(conditions, mine)
		rest = append(rest, clientv3.OpTxn([]clientv3.Cmp{mine}, []clientv3.Op{clientv3.OpDelete(name)}, nil))
	}
	answer, err := d.client.Txn(clientv3.WithRequireLeader(ctx)).If(conditions...).Then(then...).Else(rest...).Commit()
	if err != nil {
		return false, d.classify(ctx, err)
	}
	return answer.Succeeded, nil
}

// lease is a lease of etcd, which one owner has at a time. When it ends, etcd deletes the names of that owner.
type lease struct {
	id    clientv3.LeaseID
	until time.Time // when its trust ends: a TTL after a request that etcd has answered was sent, less a margin
}

// lease returns a lease with at least half of its TTL: one that is free, or a new one.
func (d *locks) lease(ctx context.Context) (*lease, error) {
	d.mu.Lock()
	for n := len(d.free); n > 0; n = len(d.free) {
		l := d.free[n-1]
		d.free = d.free[:n-1]
		if time.Until(l.until) > d.ttl/2 {
			d.mu.Unlock()
			return l, nil
		}
	}
	d.mu.Unlock()
	ctx, cancel := d.within(ctx)
	defer cancel()
	sent := time.Now()
	granted, err := d.client.Grant(ctx, int64(d.ttl/time.Second))
	if err != nil {
		if err = d.classify(ctx, err); !driver.Known(err) && !errors.Is(err, errClosed) {
			err = driver.Again(fmt.Errorf("a new lease of etcd: %w", err)) // it has no keys yet
		}
		return nil, err
	}
	if made := time.Duration(granted.TTL) * time.Second; made != d.ttl {
		_ = d.revoke(ctx, granted.ID)
		return nil, driver.Refused(fmt.Errorf("%w: %v: etcd makes it %v, at least 1.5 times its election timeout", locking.ErrTTL, d.ttl, made))
	}
	return &lease{granted.ID, sent.Add(d.ttl - driver.DefaultMargin(d.ttl))}, nil
}

// keepFree notes that no owner has l. One that is not used again ends with its TTL.
func (d *locks) keepFree(l *lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.free) > 0 && time.Now().After(d.free[0].until) {
		d.free = d.free[1:]
	}
	for owner, left := range d.left { // what etcd has ended need not be revoked
		if time.Since(left[len(left)-1].until) > d.ttl {
			delete(d.left, owner)
		}
	}
	if time.Now().Before(l.until) {
		d.free = append(d.free, l)
	}
}

// revoke ends a lease, and deletes what it has.
func (d *locks) revoke(ctx context.Context, id clientv3.LeaseID) error {
	ctx, cancel := d.within(ctx)
	defer cancel()
	_, err := d.client.Revoke(ctx, id)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return d.classify(ctx, err)
}

// absent is the condition that no key is in a queue: etcd compares an empty range like a key that was never created.
func absent(queue string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(queue).WithPrefix(), "=", 0)
}
