// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"shop/locking"
)

// turns is the Store under the batches of combined. Its lease is the turn at a wallet in the queue of this process
// (queues), which batches share with payments. It is granted when no other process has the wallet: a batch that began
// before would leave behind all that come while it waits.
//
// A lease excludes only this process. What excludes the others is ForUpdate, in the transaction of each batch. A lease in
// a database would not add to that: if its holder dies, the holder's transaction still has the wallet.
type turns struct {
	*Service
	mu   sync.Mutex
	held map[string]func() // by wallet: passes the turn on
}

// Acquire waits for the turn, and then for the other processes.
func (t *turns) Acquire(ctx context.Context, keys ...string) (l locking.Lease, err error) {
	l = locking.Lease{Keys: keys, Owner: nameCombined, Until: time.Now().Add(time.Hour)} // it ends with the process
	if !t.queued() {
		return l, ctx.Err()
	}
	id, err := uuid.Parse(keys[0])
	if err != nil {
		return l, fmt.Errorf("%w: %w", locking.ErrKey, err)
	}
	o := &operation{intent: Operation{Wallet: id}, batch: true}
	leave, err := t.queues.enter(ctx, o)
	if err != nil {
		return l, err
	}
	if t.queues.Shared(id) {
		err = t.free(ctx, o)
	}
	if err != nil {
		leave()
		return l, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held[keys[0]] = leave
	return l, nil
}

// TryAcquire is Acquire: the Combiner waits as long as its requests do.
func (t *turns) TryAcquire(ctx context.Context, keys ...string) (locking.Lease, error) {
	return t.Acquire(ctx, keys...)
}

// Renew has nothing to do.
func (t *turns) Renew(_ context.Context, l locking.Lease) (locking.Lease, error) { return l, nil }

// Release passes the turn on. A second call has no effect.
func (t *turns) Release(_ context.Context, l locking.Lease) error {
	t.mu.Lock()
	leave := t.held[l.Keys[0]]
	delete(t.held, l.Keys[0])
	t.mu.Unlock()
	if leave != nil {
		leave()
	}
	return nil
}

// free waits until no other process has the wallet: it locks it, and aborts.
func (t *turns) free(ctx context.Context, o *operation) error {
	session, err := t.client.StartSession()
	if err != nil {
		return fmt.Errorf("wallet: session: %w", err)
	}
	defer session.EndSession(context.WithoutCancel(ctx))
	isFree := errors.New("wallet: no other transaction holds the wallet")
	_, err = t.locked(ctx, session, o, func(ctx context.Context) (Reply, error) {
		if _, err := t.lock(ctx, o); err != nil {
			return Reply{}, err
		}
		return Reply{}, isFree
	})
	if errors.Is(err, isFree) {
		return nil
	}
	return err
}
