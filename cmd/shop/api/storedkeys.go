// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"

	"shop/locking/idempotency"
)

// keyStore is a database with idempotency keys: *pgtx.DB for orders and transfers, *wallet.Service for wallets.
type keyStore interface {
	CountKeys(ctx context.Context, client uuid.UUID, limit int64) (int64, error)
	HasKey(ctx context.Context, req idempotency.Request) (bool, error)
}

// storedKeys bounds the stored keys of each client, in each store. The cap is soft: a replica counts the keys of a client at
// most once in an interval, and only if the client sends requests. So a client may exceed max by the requests that its rate
// allows in an interval, and by those that it has in flight, at each replica. A count in each request would be exact
// only under a lock that all requests of a client take.
type storedKeys struct {
	log   *slog.Logger
	max   int64 // 0: no limit
	every time.Duration
	mu    sync.Mutex
	last  map[keysOf]keyCount
}

// countWait bounds a count, and so the delay of the request that counts.
const countWait = 2 * time.Second

type keysOf struct {
	client uuid.UUID
	wallet bool // the keys in MongoDB
}

type keyCount struct {
	full bool
	next time.Time // when the keys are counted again
}

// limitKeys refuses a new key of a client that has too many. A known key passes, for its reply.
func (s *Server) limitKeys(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		op := operationOf(c)
		if !op.key || s.stored.max == 0 {
			return next(c)
		}
		var store keyStore = s.keys
		if op.wallet {
			wallets, err := s.cfg.Wallets("")
			if err != nil {
				return next(c) // for the handler's error
			}
			store = wallets
		}
		ctx := c.Request().Context()
		client := callerOf(ctx).ID
		if !s.stored.full(ctx, keysOf{client, op.wallet}, store) {
			return next(c)
		}
		key, err := parseKey(c.Request().Header.Get(headerKey))
		if err != nil {
			return err
		}
		known, err := store.HasKey(ctx, idempotency.Request{Client: client, Key: key})
		switch {
		case err != nil:
			return err
		case !known:
			return errStoredKeys
		}
		return next(c)
	}
}

// full reports whether the client has max keys. The request that finds the count too old counts again. The others go by the
// count before, and do not wait. If the store does not answer, all go by the count before.
func (k *storedKeys) full(ctx context.Context, of keysOf, store keyStore) bool {
	k.mu.Lock()
	last := k.last[of]
	if time.Now().Before(last.next) {
		k.mu.Unlock()
		return last.full
	}
	if len(k.last) >= bucketsMax {
		clear(k.last)
	}
	last.next = time.Now().Add(k.every) // from before the count: the keys that are stored during it are counted next
	k.last[of] = last
	k.mu.Unlock()
	// It does not end with the request: a client could disconnect during each count.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), countWait)
	defer cancel()
	n, err := store.CountKeys(limited, of.client, k.max)
	if err != nil {
		k.log.WarnContext(ctx, "the stored keys of a client were not counted: its cap holds as of the last count", "client", of.client, "error", err)
		return last.full
	}
	last.full = n >= k.max
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last[of] = last
	return last.full
}
