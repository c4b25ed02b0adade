// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/locking/idempotency/pgtx/pgtest"
)

// bank is a separate schema with the tables that the faults watch.
type bank struct {
	t    testing.TB
	url  string
	conn *pgx.Conn // without a proxy
	id   uuid.UUID // an account with 100
}

func newBank(t testing.TB) *bank {
	t.Helper()
	b := &bank{t: t, url: pgtest.Schema(t), id: uuid.New()}
	b.conn = b.connect(b.url)
	for _, sql := range []string{
		`CREATE TABLE accounts (id uuid PRIMARY KEY, balance bigint NOT NULL,
			version bigint NOT NULL DEFAULT 0, fence bigint NOT NULL DEFAULT 0)`,
		fmt.Sprintf("INSERT INTO accounts VALUES ('%s', 100)", b.id),
	} {
		if _, err := b.conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// connect opens a connection that is closed when the test ends.
func (b *bank) connect(url string) *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = conn.Close(ctx) // may be broken already
	})
	return conn
}

func (b *bank) proxy() *Proxy {
	b.t.Helper()
	w, err := NewProxy(b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(w.Close)
	return w
}

// row returns the account's current state.
func (b *bank) row() (balance, version, fence int64) {
	b.t.Helper()
	err := b.conn.QueryRow(b.t.Context(), "SELECT balance, version, fence FROM accounts WHERE id = $1", b.id).Scan(&balance, &version, &fence)
	if err != nil {
		b.t.Fatal(err)
	}
	return balance, version, fence
}

func (b *bank) mustHave(balance int64) {
	b.t.Helper()
	if got, _, _ := b.row(); got != balance {
		b.t.Errorf("balance %d, want %d", got, balance)
	}
}

// The statements of package transfer, for the bank's account.
const (
	guardSQL = `
		UPDATE accounts
		SET fence = $2
		WHERE id = $1 AND fence <= $2
		RETURNING balance`
	balanceSQL = `
		UPDATE accounts
		SET balance = $2, version = version + 1
		WHERE id = $1`
)

// unfenced writes a balance as naive does: one segment, and no fence.
func (b *bank) unfenced(ctx context.Context, conn *pgx.Conn, balance int64) error {
	batch := &pgx.Batch{}
	batch.Queue("begin")
	batch.Queue(balanceSQL, b.id, balance)
	batch.Queue("commit")
	return conn.SendBatch(ctx, batch).Close()
}

// fenced writes a balance as etcd-fenced does: the guard is in the first segment.
func (b *bank) fenced(ctx context.Context, conn *pgx.Conn, fence, balance int64) (passed bool, err error) {
	first := &pgx.Batch{}
	first.Queue("begin")
	first.Queue(guardSQL, b.id, fence).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			passed = true
		}
		return rows.Err()
	})
	if err := conn.SendBatch(ctx, first).Close(); err != nil {
		return false, err
	}
	if !passed {
		_, err := conn.Exec(ctx, "rollback")
		return false, err
	}
	second := &pgx.Batch{}
	second.Queue(balanceSQL, b.id, balance)
	second.Queue("commit")
	return true, conn.SendBatch(ctx, second).Close()
}
