// SPDX-License-Identifier: MIT

package transfer

import "context"

// writeUnfenced begins the write of etcd-unfenced. It is writeFenced without the last line.
const writeUnfenced = `
	UPDATE accounts
	SET fence = $2, fence_epoch = $3
	WHERE id = $1`

// etcdUnfenced decides outside of any transaction, and its write compares nothing. It is
// wrong, although etcd never grants a lock twice.
//
// While holders write in time, there is one at a time. A holder that is paused, whose packet
// is late, or whose lease an operator revokes, writes after the next holder has begun, and
// overwrites what that one changed. etcd cannot prevent it: the write does not pass through
// etcd. A check of the lease before the write cannot either: the pause may come after it.
func (s *Service) etcdUnfenced(ctx context.Context, o *operation) (Reply, error) {
	return s.outside(ctx, o, writeUnfenced)
}
