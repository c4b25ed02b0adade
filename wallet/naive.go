// SPDX-License-Identifier: MIT

package wallet

import (
	"context"
	"errors"
	"fmt"

	"shop/locking"
)

// naive reads, calls the bonus service, and writes what it computed, without a transaction. It
// is wrong.
//
// Two credits read 100, and both call the bonus service. One writes 100 + 30, the other 100 +
// 20. A server that dies between two of the statements leaves half an operation. naive passes
// every test with one writer at a time.
func (s *Service) naive(ctx context.Context, o *operation) (Reply, error) {
	if err := s.step(ctx, AfterBegin); err != nil {
		return Reply{}, err
	}
	wallets, err := s.read(ctx, o)
	if err != nil {
		return Reply{}, toPublic(ctx, err)
	}
	reply, err := s.finish(ctx, o, wallets, s.callBonus)
	if errors.Is(err, errKeyTaken) { // the balance has been changed already, and stays so
		reply, _, err = s.lookupReply(ctx, o.req)
	}
	if err == nil {
		_ = s.step(ctx, AfterCommit)
		return reply, nil
	}
	if err = toPublic(ctx, err); errors.Is(err, locking.ErrBusy) || ctx.Err() != nil {
		return Reply{}, fmt.Errorf("%w: %v", locking.ErrOutcomeUnknown, err) // a part may have been written
	}
	return Reply{}, err
}
