// SPDX-License-Identifier: MIT

package inventory

import "context"

// For tests outside the package.
var LockKey = lockKey

func LockKeys(skus []string) []int64 { return (&purchase{skus: skus}).lockKeys() }

// Buy calls BuyWith with the Service's own strategy.
func (s *Service) Buy(ctx context.Context, req Request, lines []Line) (Reply, error) {
	return s.BuyWith(ctx, "", req, lines)
}
