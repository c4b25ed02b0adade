package transfer

import "context"

// writeFenced begins the write of etcd-fence-only: the row takes no fence lower
// than one that it has seen, and none of another epoch.
const writeFenced = `
	UPDATE accounts
	SET fence = $2, fence_epoch = $3
	WHERE id = $1
	AND fence_epoch = $3 AND fence <= $2`

// etcdFenceOnly works outside of any transaction, and its write names its fence.
// Right, as long as every writer of these accounts brings one.
//
// Beside row and serializable, which bring none, updates are lost: neither their
// writes nor this one notice each other. A change of the strategy under load goes
// by way of etcd-fenced, which locks rows and brings a fence.
func (s *Service) etcdFenceOnly(ctx context.Context, o *operation) (Reply, error) {
	return s.outside(ctx, o, writeFenced)
}
