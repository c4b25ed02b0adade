package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"shop/locking"
	"shop/locking/idempotency/pgtx"
)

// operation is one change of money on its way, checked and in lock order: what
// survives from attempt to attempt. Which strategy runs it makes no difference
// to what it does.
type operation struct {
	pgtx.Op            // without a Key: a sweep, which no client asked for
	id       uuid.UUID // of the transfer
	from, to uuid.UUID
	change   *change // of a hold that exists; nil: a new transfer
	// decide looks at what was read, under the strategy's locks if it has any, and
	// queues what is to be written.
	decide  func(ctx context.Context, a *attempt, from, to *account) (Reply, error)
	expires bool // it ends a hold whose time is over
	rounds  int  // how often expired holds of the payer were given back for it
}

// pair is both accounts in byte order, which is PostgreSQL's order of uuid: the
// order in which every operation locks.
func (o *operation) pair() []uuid.UUID {
	ids := []uuid.UUID{o.from, o.to}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// attempt is one transaction of an operation, and what it has read.
type attempt struct {
	*pgtx.Tx
	*operation
	s      *Service
	reads  []*[]account
	hold   *[]Transfer        // the hold, behind its change
	ended  *pgconn.CommandTag // UPDATE 1: it was this attempt that changed it
	fence  locking.Fence      // under which it writes; 0: the strategy has none
	epoch  string             // of the counter that made fence
	guards bool               // a guard was queued: a missing row may be one that refused
}

// account is a row as the transaction sees it.
type account struct {
	ID       uuid.UUID
	Owner    uuid.UUID
	Currency string
	Balance  int64
	Held     int64
	At       time.Time // the server's clock
}

// run runs an operation with the Service's strategy.
func (s *Service) run(ctx context.Context, o *operation) (Reply, error) {
	if err := s.step(ctx, BeforeAcquire); err != nil {
		return Reply{}, err
	}
	reply, err := s.method(s, ctx, o)
	for due := new(dueError); errors.As(err, &due); {
		reply, err = s.runAfter(ctx, o, due)
	}
	if err != nil && o.Unknown() && !errors.Is(err, locking.ErrOutcomeUnknown) {
		// It is not the error of the attempt that may have committed.
		err = fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err)
	}
	_ = s.step(ctx, AfterRelease)
	return reply, err
}

// step lets a test act outside of the transaction.
func (s *Service) step(ctx context.Context, step Step) error {
	if s.cfg.Failpoint == nil {
		return nil
	}
	s.cfg.Failpoint(ctx, step, s.cfg.Strategy)
	return context.Cause(ctx)
}

// transact runs body in transactions, until the operation's outcome is known.
func (s *Service) transact(ctx context.Context, o *operation, body func(context.Context, *attempt) (Reply, error)) (Reply, error) {
	reply, err := s.db.Run(ctx, &o.Op, func(ctx context.Context, tx *pgtx.Tx) (Reply, error) {
		return body(ctx, &attempt{Tx: tx, operation: o, s: s})
	})
	if err == nil && o.expires {
		s.cfg.Count(Swept, s.cfg.Strategy)
	}
	return reply, err
}

// read queues a statement that returns accounts.
func (a *attempt) read(sql string, args ...any) {
	a.reads = append(a.reads, pgtx.Query[account](a.Tx, sql, args...))
}

// readAndDecide is the part behind the locks that the strategies share which read
// inside their one transaction.
func (a *attempt) readAndDecide(ctx context.Context) (Reply, error) {
	if a.change != nil {
		a.endHold(*a.change)
	}
	if err := a.guarded(ctx); err != nil {
		return Reply{}, err
	}
	return a.decideNow(ctx)
}

// guarded sends what is queued: both accounts are read, and locked where the strategy locks.
func (a *attempt) guarded(ctx context.Context) error {
	if err := a.Flush(ctx); err != nil {
		return err
	}
	return a.Step(ctx, AfterGuard)
}

// decideNow decides about what was read.
func (a *attempt) decideNow(ctx context.Context) (Reply, error) {
	from, to, err := a.findAccounts(ctx)
	if err != nil {
		return Reply{}, err
	}
	return a.decide(ctx, a, from, to)
}

// findAccounts finds both accounts in what was read, and checks that the client
// owns the payer's: inside the transaction, like everything that decides.
func (a *attempt) findAccounts(ctx context.Context) (from, to *account, err error) {
	from, to = a.find(a.from), a.find(a.to)
	switch {
	case from == nil:
		err = fmt.Errorf("%w: account %s", ErrNotFound, a.from)
	case a.Key != "" && from.Owner != a.Client:
		return nil, nil, fmt.Errorf("%w: %s", ErrForbidden, a.from) // before anything is said about the payee
	case to == nil:
		err = fmt.Errorf("%w: account %s", ErrNotFound, a.to)
	}
	if err != nil && a.guards {
		err = a.explainMiss(ctx, err)
	}
	return from, to, err
}

func (a *attempt) find(id uuid.UUID) *account {
	for _, rows := range a.reads {
		for i := range *rows {
			if (*rows)[i].ID == id {
				return &(*rows)[i]
			}
		}
	}
	return nil
}

// record queues what an operation leaves besides the key: the accounts, the
// transfer, and two entries if money moved. The accounts go before the rows that
// refer to them: their foreign keys lock the accounts too (FOR KEY SHARE), and of
// two locks of one row the stronger is to be taken first.
func (a *attempt) record(tr Transfer, accounts ...*account) (Reply, error) {
	a.save(accounts...)
	if a.change == nil {
		a.Exec(`
			INSERT INTO transfers (id, client_id, idempotency_key, from_id, to_id, amount, currency,
			                       state, settled, created_at, expires_at, ended_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
			tr.ID, tr.Client, a.Key, tr.From, tr.To, tr.Amount, tr.Currency,
			tr.State, tr.Settled, tr.CreatedAt, tr.ExpiresAt, tr.EndedAt)
	}
	if tr.Settled > 0 {
		// Both entries, with the fence under which they are written, and the version
		// that each account has just got.
		a.Exec(`
			INSERT INTO ledger_entries (transfer_id, account_id, delta, account_version, fence, fence_epoch)
			SELECT $1, a.id, e.delta, a.version, $4, $5
			FROM unnest($2::uuid[], $3::bigint[]) AS e(id, delta)
			JOIN accounts a ON a.id = e.id`,
			tr.ID, []uuid.UUID{tr.From, tr.To}, []int64{-tr.Settled, tr.Settled}, int64(a.fence), a.epoch)
	}
	return a.s.cfg.Encode(tr, nil)
}

// save queues the balances that were computed from what was read, in id order.
// All strategies write alike. They differ in what the reading was worth: under a
// row lock or a guard it is still true here; under naive it is out of date, and
// this write loses the updates between. CHECK (balance >= held) is the last guard,
// and does not notice that.
func (a *attempt) save(accounts ...*account) {
	slices.SortFunc(accounts, func(a, b *account) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, row := range accounts {
		a.Exec(`
			UPDATE accounts
			SET balance = $2, held = $3, version = version + 1
			WHERE id = $1`, row.ID, row.Balance, row.Held)
	}
}

// refuse is a reply that is stored, and changes nothing else.
func (s *Service) refuse(tr Transfer, why error) (Reply, error) {
	reply, err := s.cfg.Encode(tr, why)
	if err != nil {
		return Reply{}, err
	}
	return pgtx.Refuse(reply)
}
