package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// AmountMax is the largest amount of one transfer: what every JSON reader
// understands exactly, and far below what a balance can hold.
const AmountMax = 1<<53 - 1

// job is one change of money on its way, checked and in lock order: what
// survives from attempt to attempt. Which strategy runs it makes no difference
// to what it does.
type job struct {
	req      Request // without a Key: nobody asked, a sweep
	strategy string
	id       uuid.UUID // of the transfer
	from, to uuid.UUID
	change   *change // of a hold that exists; nil: a new transfer
	// decide looks at what was read, under whatever lock the strategy has, and
	// queues what is to be written.
	decide  func(ctx context.Context, t *tx, from, to *account) (Reply, error)
	expires bool // it ends a hold whose time is over
	unknown bool // an earlier COMMIT may have happened: no error may say otherwise
	rounds  int  // how often expired holds of the payer were given back for it
}

// pair is both accounts in byte order, which is PostgreSQL's order of uuid: the
// order in which everything is locked, by everyone.
func (j *job) pair() []uuid.UUID {
	ids := []uuid.UUID{j.from, j.to}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// lockNames are the keys of both accounts at the lock store. String is canonical
// (lower case, hyphens), so that one account has one lock however a client writes it.
func (j *job) lockNames() []string {
	names := make([]string, 0, 2)
	for _, id := range j.pair() {
		names = append(names, "account/"+id.String())
	}
	return names
}

// finish decides about what was read.
func (j *job) finish(ctx context.Context, t *tx) (Reply, error) {
	from, to, err := j.known(t)
	if err != nil {
		return Reply{}, err
	}
	return j.decide(ctx, t, from, to)
}

// known finds both accounts in what was read, and that the payer's is the
// client's: in the transaction, like everything that decides.
func (j *job) known(t *tx) (from, to *account, err error) {
	from, to = find(t.accounts, j.from), find(t.accounts, j.to)
	switch {
	case from == nil:
		err = fmt.Errorf("%w: account %s", ErrNotFound, j.from)
	case j.req.Key != "" && from.owner != j.req.Client:
		err = mayPay(j.req, j.from, &from.owner) // before anything is said about the payee
	case to == nil:
		err = fmt.Errorf("%w: account %s", ErrNotFound, j.to)
	}
	return from, to, err
}

// mayPay finds what is wrong with the client as the payer. owner nil: there is no such account.
func mayPay(req Request, from uuid.UUID, owner *uuid.UUID) error {
	switch {
	case owner == nil:
		return fmt.Errorf("%w: account %s", ErrNotFound, from)
	case *owner != req.Client:
		return fmt.Errorf("%w: %s", ErrForbidden, from)
	}
	return nil
}

func find(accounts []account, id uuid.UUID) *account {
	for i := range accounts {
		if accounts[i].id == id {
			return &accounts[i]
		}
	}
	return nil
}

// check finds what is wrong with a move before anything is locked.
func (m Move) check() error {
	switch {
	case m.Amount < 1 || m.Amount > AmountMax:
		return fmt.Errorf("%w: amount %d, want 1 to %d", ErrInvalid, m.Amount, int64(AmountMax))
	case m.From == m.To:
		return fmt.Errorf("%w: from and to are the same account", ErrInvalid)
	case !isCurrency(m.Currency):
		return fmt.Errorf("%w: currency %.8q", ErrInvalid, m.Currency)
	}
	return nil
}

// fits finds what is wrong with a move between these two accounts.
func (m Move) fits(from, to *account) error {
	for _, a := range []*account{from, to} {
		if a.currency != m.Currency {
			return fmt.Errorf("%w: account %s is in %s, not in %s", ErrInvalid, a.id, a.currency, m.Currency)
		}
	}
	if to.balance > math.MaxInt64-m.Amount {
		return fmt.Errorf("%w: more than account %s can hold", ErrInvalid, to.id)
	}
	return nil
}

func isCurrency(code string) bool {
	return len(code) == 3 && !strings.ContainsFunc(code, func(r rune) bool { return r < 'A' || r > 'Z' })
}

func checkRequest(req Request) error {
	printable := func(r rune) bool { return r >= ' ' && r <= '~' }
	if n := len(req.Key); n < 1 || n > 255 || strings.ContainsFunc(req.Key, func(r rune) bool { return !printable(r) }) {
		return fmt.Errorf("%w: the idempotency key must be 1 to 255 printable ASCII characters", ErrInvalid)
	}
	return nil
}

// later of both readings of the server's clock.
func later(a, b *account) time.Time {
	if a.at.After(b.at) {
		return a.at
	}
	return b.at
}
