// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"sync/atomic"

	"github.com/google/uuid"

	"shop/locking/etcdlock"
	"shop/locking/idempotency"
	"shop/locking/invariant"
	"shop/transfer"
)

// The hot accounts, and their owner.
var (
	owner = uuid.MustParse("00000000-0000-7000-8000-000000000001")
	pair  = [2]uuid.UUID{uuid.MustParse("00000000-0000-7000-8000-00000000000a"), uuid.MustParse("00000000-0000-7000-8000-00000000000b")}
)

// transfers opens a Service with the stores that shop serve has. Its requests move money in one direction after the other.
func transfers(ctx context.Context, t turn) (request func(context.Context) error, done func(), err error) {
	pool, err := connect(ctx, t.Place)
	if err != nil {
		return nil, nil, err
	}
	client, err := etcdClient()
	if err != nil {
		return nil, nil, err
	}
	store, err := etcdlock.New(ctx, client, leaseTTL, etcdlock.Options{Prefix: t.Place.Prefix})
	if err != nil {
		return nil, nil, err
	}
	service, err := transfer.New(transfer.Config{Pool: pool, Locks: store, Epoch: store.Epoch(), Strategy: t.Strategy, Encode: func(tr transfer.Transfer, err error) (transfer.Reply, error) {
		return encode(tr, err, t.Work)
	}})
	if err != nil {
		return nil, nil, err
	}
	var n atomic.Int64
	request = func(ctx context.Context) error {
		from := n.Add(1) % 2
		req := idempotency.Request{Client: owner, Key: uuid.NewString(), Fingerprint: [32]byte{1}}
		return answered(func() error {
			_, err := service.Transfer(ctx, req, transfer.Move{From: pair[from], To: pair[1-from], Amount: 1, Currency: "EUR"})
			return err
		})
	}
	return request, func() {
		service.Close()
		store.Close()
		_ = client.Close()
		pool.Close()
	}, nil
}

func auditTransfer(ctx context.Context, p place) (invariant.Findings, error) {
	return audit(ctx, p, transfer.Invariants.Checks)
}
