package wallet

import (
	"context"
	"errors"
	"fmt"

	"shop/locking"
)

// naive: read, ask, write what was computed. No transaction. Wrong.
//
// Two credits read 100, both ask, one writes 100 + 30, the other 100 + 20. It passes
// every test with one writer at a time. And a server that dies between two of the
// statements leaves half an operation.
func (s *Service) naive(ctx context.Context, j *job) (Reply, error) {
	if err := s.step(ctx, AfterBegin); err != nil {
		return Reply{}, err
	}
	wallets, err := s.read(ctx, j)
	if err != nil {
		return Reply{}, toPublic(ctx, err)
	}
	reply, err := s.finish(ctx, j, wallets, s.ask)
	if errors.Is(err, errKeyTaken) { // the balance is changed already, and is not changed back
		reply, _, err = s.lookupReply(ctx, j.req)
	}
	if err == nil {
		_ = s.step(ctx, AfterCommit)
		return reply, nil
	}
	if err = toPublic(ctx, err); errors.Is(err, locking.ErrBusy) || ctx.Err() != nil {
		return Reply{}, fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err) // some of it may be there
	}
	return Reply{}, err
}
