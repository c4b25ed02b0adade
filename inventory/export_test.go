// SPDX-License-Identifier: MIT

package inventory

import "context"

// For tests outside the package.
var LockKey = lockKey

func LockKeys(skus []string) []int64 { return (&purchase{skus: skus}).lockKeys() }

// BuyWith buys with a strategy.
func (s *Service) BuyWith(ctx context.Context, strategy string, req Request, lines []Line) (Reply, error) {
	other, err := s.With(strategy)
	if err != nil {
		return Reply{}, err
	}
	return other.Buy(ctx, req, lines)
}
