// SPDX-License-Identifier: MIT

package transfer

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// selectTransfer has the columns in the order of Transfer's fields.
const selectTransfer = `
	SELECT id, client_id, from_id, to_id, amount, settled, currency, state, created_at, expires_at, ended_at
	FROM transfers`

// Find returns a transfer of the client. For another client's it returns ErrNotFound, as for one
// that does not exist.
func (s *Service) Find(ctx context.Context, client, id uuid.UUID) (Transfer, error) {
	var list []Transfer
	err := s.db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		rows, _ := conn.Query(ctx, selectTransfer+` WHERE id = $1 AND client_id = $2`, id, client)
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Transfer])
		return err
	})
	switch {
	case err != nil:
		return Transfer{}, fmt.Errorf("transfer: transfer %s: %w", id, err)
	case len(list) == 0:
		return Transfer{}, fmt.Errorf("%w: transfer %s", ErrNotFound, id)
	}
	return list[0].utc(), nil
}

// utc returns t with its times in UTC: a body must not depend on the server that wrote it.
func (t Transfer) utc() Transfer {
	t.CreatedAt = t.CreatedAt.UTC()
	for _, at := range []**time.Time{&t.ExpiresAt, &t.EndedAt} {
		if *at != nil {
			moved := (*at).UTC()
			*at = &moved
		}
	}
	return t
}

// Account is an account as its owner sees it.
type Account struct {
	ID        uuid.UUID
	Owner     uuid.UUID
	Currency  string
	Opening   int64
	Balance   int64
	Held      int64   // reserved by holds: still in Balance
	Over      int64   // the part of Held whose holds are over: their end is not recorded yet
	Entries   []Entry // the latest first
	CreatedAt time.Time
}

// Available is what can be spent: an operation that needs the money of holds that are over ends them first.
func (a Account) Available() int64 { return a.Balance - a.Held + a.Over }

// over is the money of an account's holds that are over. A Post that was in time may be committing at this moment.
const over = `
	COALESCE((SELECT sum(amount)
	          FROM transfers
	          WHERE from_id = accounts.id AND state = 'reserved' AND expires_at <= clock_timestamp()), 0)::bigint`

// Entry is one line of the ledger: what one transfer did to one account.
type Entry struct {
	Transfer  uuid.UUID
	Delta     int64 // what was added: negative for the payer
	Version   int64 // of the account, after the entry
	CreatedAt time.Time
}

// entriesMax is how many of an account's latest entries are shown.
const entriesMax = 20

// OpenAccount makes an account with its opening balance. If the id exists, nothing changes
// and opened is false, so it may be repeated after any error. Money enters the system only here.
func (s *Service) OpenAccount(ctx context.Context, a Account) (opened bool, err error) {
	if a.Opening < 0 || a.Opening > AmountMax || !isCurrency(a.Currency) {
		return false, fmt.Errorf("%w: opening %d %.8q", ErrInvalid, a.Opening, a.Currency)
	}
	err = s.db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, `
			INSERT INTO accounts (id, owner_id, currency, opening, balance, fence_epoch)
			VALUES ($1, $2, $3, $4, $4, $5)
			ON CONFLICT (id) DO NOTHING`, a.ID, a.Owner, a.Currency, a.Opening, s.cfg.Epoch)
		opened = tag.RowsAffected() == 1
		return err
	})
	if err != nil {
		return false, fmt.Errorf("transfer: open account %s: %w", a.ID, err)
	}
	return opened, nil
}

// Account returns an account of the client, with its latest entries. For another client's it
// returns ErrNotFound, as for one that does not exist.
func (s *Service) Account(ctx context.Context, client, id uuid.UUID) (a Account, err error) {
	err = s.db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		a, err = readAccount(ctx, conn, client, id)
		return err
	})
	if err != nil {
		return Account{}, fmt.Errorf("transfer: account %s: %w", id, err)
	}
	return a, nil
}

func readAccount(ctx context.Context, conn *pgx.Conn, client, id uuid.UUID) (Account, error) {
	a := Account{ID: id, Owner: client}
	var e struct {
		Entry
		id *uuid.UUID // nil: the account has no entry
	}
	// One statement, so that the balance and the entries are of one snapshot.
	rows, _ := conn.Query(ctx, `
		SELECT currency, opening, balance, held, `+over+`, accounts.created_at,
		       l.transfer_id, COALESCE(l.delta, 0), COALESCE(l.account_version, 0), COALESCE(l.created_at, accounts.created_at)
		FROM accounts
		LEFT JOIN LATERAL (
			SELECT transfer_id, delta, account_version, created_at
			FROM ledger_entries
			WHERE account_id = accounts.id
			ORDER BY account_version DESC
			LIMIT $3) l ON true
		WHERE accounts.id = $1 AND owner_id = $2
		ORDER BY l.account_version DESC`, id, client, entriesMax)
	tag, err := pgx.ForEachRow(rows, []any{
		&a.Currency, &a.Opening, &a.Balance, &a.Held, &a.Over, &a.CreatedAt,
		&e.id, &e.Delta, &e.Version, &e.CreatedAt,
	}, func() error {
		if e.id != nil {
			e.Transfer, e.CreatedAt = *e.id, e.CreatedAt.UTC()
			a.Entries = append(a.Entries, e.Entry)
		}
		return nil
	})
	a.CreatedAt = a.CreatedAt.UTC()
	if err == nil && tag.RowsAffected() == 0 {
		err = ErrNotFound
	}
	return a, err
}

// Accounts returns the accounts of the client in order of id, without their entries.
func (s *Service) Accounts(ctx context.Context, client uuid.UUID) ([]Account, error) {
	var (
		a    Account
		list []Account
	)
	err := s.db.Read(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		list = nil
		rows, _ := conn.Query(ctx, `
			SELECT id, owner_id, currency, opening, balance, held, `+over+`, created_at
			FROM accounts
			WHERE owner_id = $1
			ORDER BY id`, client)
		_, err := pgx.ForEachRow(rows, []any{&a.ID, &a.Owner, &a.Currency, &a.Opening, &a.Balance, &a.Held, &a.Over, &a.CreatedAt}, func() error {
			a.CreatedAt = a.CreatedAt.UTC()
			list = append(list, a)
			return nil
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("transfer: list accounts: %w", err)
	}
	return list, nil
}
