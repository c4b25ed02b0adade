package inventory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking"
)

// advisoryTry: the same lock, asked for and not waited for. Right, as advisory is.
//
// Whoever waits inside PostgreSQL occupies a connection. This one gives it back
// and asks again later, so that a few connections serve many who wait; the
// price is that nobody queues, and who comes first is a matter of luck.
func (s *Service) advisoryTry(ctx context.Context, p *purchase) (Reply, error) {
	open := func(t *tx) {
		begin(t)
		if p.unknown { // the first attempt may still hold it: wait for its end, luck decides nothing
			p.lockAdvisory(t)
		} else {
			p.tryAdvisory(t)
		}
	}
	for start, try := time.Now(), 0; ; try++ {
		reply, err := s.transact(ctx, &p.intent, open, func(ctx context.Context, t *tx) (Reply, error) {
			return s.readUnderLock(ctx, t, p)
		})
		if !errors.Is(err, errTaken) {
			return reply, err
		}
		if time.Since(start) > LockTimeout {
			return Reply{}, fmt.Errorf("%w: asked %d times in %v", locking.ErrBusy, try+1, LockTimeout)
		}
		if err := pause(ctx, try+1); err != nil {
			return Reply{}, err
		}
	}
}

// tryAdvisory asks for the locks; one that is taken ends the attempt.
func (p *purchase) tryAdvisory(t *tx) {
	for _, key := range p.lockKeys() {
		t.batch.Queue(`SELECT pg_try_advisory_xact_lock($1)`, key).QueryRow(func(row pgx.Row) error {
			var ours bool
			err := row.Scan(&ours)
			t.answered++
			t.taken = t.taken || !ours
			return err
		})
	}
}
