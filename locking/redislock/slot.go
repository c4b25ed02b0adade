package redislock

import (
	"github.com/redis/go-redis/v9"

	"shop/locking"
)

// waitsForSlot makes a refusal of a Cluster whose slot is moving match locking.ErrBusy: nothing was done, and the same request
// is granted when the slot has its node. The client follows MOVED and ASK, but not for ever: while a slot changes hands, each
// of two nodes may name the other. And no node that is asked has both a lock that is free, since that has no key, and the
// fence counter that has one: then the answer is TRYAGAIN until the slot has moved, for minutes if it is large.
func (s *Store) waitsForSlot(err error) error {
	if _, cluster := s.client.(*redis.ClusterClient); !cluster {
		return err // another client will not find the node
	}
	for _, word := range []string{"TRYAGAIN", "CLUSTERDOWN", "MOVED", "ASK"} {
		if redis.HasErrorPrefix(err, word+" ") {
			return &slotError{err}
		}
	}
	return err
}

// slotError matches locking.ErrBusy, without its text: there is no other holder.
type slotError struct{ error }

func (e *slotError) Error() string {
	return "the slot of the keys has no node at the moment: " + e.error.Error()
}
func (e *slotError) Unwrap() error        { return e.error }
func (e *slotError) Is(target error) bool { return target == locking.ErrBusy }
