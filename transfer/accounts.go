package transfer

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// entriesMax is how many of an account's latest entries are shown.
const entriesMax = 20

// OpenAccount makes an account with its opening balance, once: if the id exists,
// nothing changes and opened is false. So it may be repeated after any error.
// Money comes into the system here, and nowhere else.
func (s *Service) OpenAccount(ctx context.Context, a Account) (opened bool, err error) {
	if a.Opening < 0 || a.Opening > AmountMax || !isCurrency(a.Currency) {
		return false, fmt.Errorf("%w: opening %d %.8q", ErrInvalid, a.Opening, a.Currency)
	}
	ctx, cancel := answerIn(ctx)
	defer cancel()
	tag, err := s.pool.Exec(ctx, `
		INSERT INTO accounts (id, owner_id, currency, opening, balance, fence_source)
		VALUES ($1, $2, $3, $4, $4, $5)
		ON CONFLICT (id) DO NOTHING`, a.ID, a.Owner, a.Currency, a.Opening, s.source)
	if err != nil {
		return false, fmt.Errorf("transfer: open account %s: %w", a.ID, err)
	}
	return tag.RowsAffected() == 1, nil
}

// Account finds an account of the client, with its latest entries. Somebody
// else's is ErrNotFound, like one that is not.
func (s *Service) Account(ctx context.Context, client, id uuid.UUID) (a Account, err error) {
	err = patiently(ctx, func() error {
		a, err = s.account(ctx, client, id)
		return err
	})
	return a, err
}

func (s *Service) account(ctx context.Context, client, id uuid.UUID) (Account, error) {
	ctx, cancel := answerIn(ctx)
	defer cancel()
	conn, err := s.connection(ctx)
	if err != nil {
		return Account{}, err
	}
	defer conn.Release()
	a := Account{ID: id, Owner: client}
	var e struct {
		Entry
		id *uuid.UUID // nil: there is none
	}
	// One statement, so that balance and entries are of one snapshot.
	rows, _ := conn.Query(ctx, `
		SELECT a.currency, a.opening, a.balance, a.held, a.created_at,
		       l.transfer_id, COALESCE(l.delta, 0), COALESCE(l.account_version, 0), COALESCE(l.created_at, a.created_at)
		FROM accounts a
		LEFT JOIN LATERAL (
			SELECT transfer_id, delta, account_version, created_at
			FROM ledger_entries
			WHERE account_id = a.id
			ORDER BY account_version DESC
			LIMIT $3) l ON true
		WHERE a.id = $1 AND a.owner_id = $2
		ORDER BY l.account_version DESC`, id, client, entriesMax)
	tag, err := pgx.ForEachRow(rows, []any{
		&a.Currency, &a.Opening, &a.Balance, &a.Held, &a.CreatedAt,
		&e.id, &e.Delta, &e.Version, &e.CreatedAt,
	}, func() error {
		if e.id != nil {
			e.Transfer, e.CreatedAt = *e.id, e.CreatedAt.UTC()
			a.Entries = append(a.Entries, e.Entry)
		}
		return nil
	})
	a.CreatedAt = a.CreatedAt.UTC()
	switch {
	case err != nil && ctx.Err() != nil:
		return Account{}, context.Cause(ctx)
	case err != nil && conn.Conn().IsClosed():
		return Account{}, fmt.Errorf("%w: %w", errLostConn, err)
	case err != nil:
		return Account{}, fmt.Errorf("transfer: account %s: %w", id, err)
	case tag.RowsAffected() == 0:
		return Account{}, fmt.Errorf("%w: account %s", ErrNotFound, id)
	}
	return a, nil
}

// Accounts lists the accounts of the client in order of id, without their entries.
func (s *Service) Accounts(ctx context.Context, client uuid.UUID) ([]Account, error) {
	ctx, cancel := answerIn(ctx)
	defer cancel()
	rows, _ := s.pool.Query(ctx, `
		SELECT id, owner_id, currency, opening, balance, held, created_at
		FROM accounts
		WHERE owner_id = $1
		ORDER BY id`, client)
	var (
		a    Account
		list []Account
	)
	_, err := pgx.ForEachRow(rows, []any{&a.ID, &a.Owner, &a.Currency, &a.Opening, &a.Balance, &a.Held, &a.CreatedAt}, func() error {
		a.CreatedAt = a.CreatedAt.UTC()
		list = append(list, a)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("transfer: list accounts: %w", endOf(ctx, err))
	}
	return list, nil
}
