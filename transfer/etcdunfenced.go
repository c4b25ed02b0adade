package transfer

import "context"

// writeUnfenced begins the write of etcd-unfenced: writeFenced without its last line.
const writeUnfenced = `
	UPDATE accounts
	SET fence = $2, fence_epoch = $3
	WHERE id = $1`

// etcdUnfenced works outside of any transaction, and writes. Wrong, although etcd
// never grants twice.
//
// A holder in time is alone. A holder that is paused, or whose packet is late, or
// whose lease an operator revokes, writes after the next one has begun, and puts
// back what that one changed. etcd cannot prevent it: the write does not pass
// through etcd. Nor can a look at the lease before the write: the pause comes
// between the look and the write.
func (s *Service) etcdUnfenced(ctx context.Context, o *operation) (Reply, error) {
	return s.outside(ctx, o, writeUnfenced)
}
