// SPDX-License-Identifier: MIT

package transfer

import "context"

// writeFenced begins the write of etcd-fence-only. The row accepts no fence lower than one
// that it has seen, and none of another epoch.
const writeFenced = `
	UPDATE accounts
	SET fence = $2, fence_epoch = $3
	WHERE id = $1
	AND fence_epoch = $3 AND fence <= $2`

// etcdFenceOnly decides outside of any transaction, and its write compares its fence. It is
// right as long as every writer of these accounts carries a fence.
//
// Beside row and serializable, which carry none, updates are lost: neither side detects the
// writes of the other. To change from one to the other under load, go through etcd-fenced,
// which locks the rows and carries a fence.
func (s *Service) etcdFenceOnly(ctx context.Context, o *operation) (Reply, error) {
	return s.outside(ctx, o, writeFenced)
}
