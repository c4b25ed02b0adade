// SPDX-License-Identifier: MIT

package api_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/redislock"
	"shop/locking/servertest"
)

// withRedis sells under a lock in the real Redis, with its own prefix.
func withRedis(t *testing.T, ttl time.Duration) (option, *redis.Client, string) {
	t.Helper()
	client := must(redislock.Connect(servertest.Env(t, "SHOP_REDIS_URL"), ttl))(t)
	prefix := "api-" + uuid.NewString()
	store := must(redislock.New(client, ttl, redislock.Options{Prefix: prefix}))(t)
	t.Cleanup(func() {
		store.Close()
		_ = client.Close()
	})
	return func(front *api.Config, stock *inventory.Config) {
		stock.Strategy, stock.Locks = "redis+row", store
	}, client, prefix
}

func TestLock_LostBeforeTheWriteIsReportedAndTheKeyStaysFree(t *testing.T) {
	t.Parallel()
	lock, client, prefix := withRedis(t, 3*time.Second)
	var once sync.Once
	s := open(t, lock, at(inventory.AfterGuard, func(ctx context.Context) {
		once.Do(func() {
			names, err := client.Keys(ctx, prefix+"*").Result()
			if err != nil || len(names) == 0 {
				t.Errorf("no lock: %v, %v", names, err)
			}
			if err := client.Del(ctx, names...).Err(); err != nil {
				t.Error(err)
			}
			<-ctx.Done() // the renewal noticed
		})
	}))
	lost := s.buy("k", "coffee", "1").want(t, 503, api.TypeLost)
	if lost.header.Get("Retry-After") == "" {
		t.Error("503 without Retry-After")
	}
	s.wantOrders(0)
	s.buy("k", "coffee", "1").want(t, 201, "")
	s.wantOrders(1)
}

// Another transaction inserts the same key, and stays open longer than lock_timeout.
func TestBuy_AKeyThatIsInUseIsInProgress(t *testing.T) {
	t.Parallel()
	s := open(t)
	conn := must(pgx.ConnectConfig(t.Context(), s.pool.Config().ConnConfig))(t)
	defer conn.Close(context.Background())
	tx := must(conn.Begin(t.Context()))(t)
	if _, err := tx.Exec(t.Context(), `SET idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}
	_, err := tx.Exec(t.Context(), `INSERT INTO idempotency_keys VALUES ($1, 'k', $2, 0, '')`, s.ids["alice"], make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	busy := s.buy("k", "coffee", "1").want(t, 409, api.TypeInProgress)
	if busy.header.Get("Retry-After") == "" {
		t.Error("in progress without Retry-After")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.buy("k", "coffee", "1").want(t, 201, "")
	s.wantOrders(1)
}
