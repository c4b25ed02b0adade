// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking/etcdlock"
	"shop/locking/idempotency"
	"shop/transfer"
)

// The hot accounts, and their owner.
var (
	owner = uuid.MustParse("00000000-0000-7000-8000-000000000001")
	pair  = [2]uuid.UUID{uuid.MustParse("00000000-0000-7000-8000-00000000000a"), uuid.MustParse("00000000-0000-7000-8000-00000000000b")}
)

func openAccounts(ctx context.Context, p place) error {
	pool, err := pgxpool.New(ctx, p.Postgres)
	if err != nil {
		return err
	}
	defer pool.Close()
	_, err = pool.Exec(ctx, `
		INSERT INTO accounts (id, owner_id, currency, opening, balance)
		SELECT id, $2, 'EUR', $3, $3 FROM unnest($1::uuid[]) AS id`, pair[:], owner, int64(1)<<40)
	return err
}

// bank opens a Service with the stores that shop serve has.
func bank(ctx context.Context, p place, strategy string, work time.Duration) (*transfer.Service, func(), error) {
	pool, err := connect(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	config := etcdlock.Config(strings.Split(os.Getenv("SHOP_ETCD_ENDPOINTS"), ",")...)
	config.Logger = zap.NewNop() // it logs what is cut off when the client is closed
	client, err := clientv3.New(config)
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	store, err := etcdlock.New(ctx, client, ttl, etcdlock.Options{Prefix: p.Prefix})
	if err != nil {
		_ = client.Close()
		pool.Close()
		return nil, nil, err
	}
	service, err := transfer.New(transfer.Config{Pool: pool, Locks: store, Epoch: store.Epoch(), Strategy: strategy, Encode: func(tr transfer.Transfer, err error) (transfer.Reply, error) {
		return encode(tr, err, work)
	}})
	return service, func() {
		service.Close()
		store.Close()
		_ = client.Close()
		pool.Close()
	}, err
}

// transfers returns a function that moves money, in one direction after the other.
func transfers(service *transfer.Service) func(context.Context) error {
	var n atomic.Int64
	return func(ctx context.Context) error {
		from := n.Add(1) % 2
		req := idempotency.Request{Client: owner, Key: uuid.NewString(), Fingerprint: [32]byte{1}}
		return answered(func() error {
			_, err := service.Transfer(ctx, req, transfer.Move{From: pair[from], To: pair[1-from], Amount: 1, Currency: "EUR"})
			return err
		})
	}
}
