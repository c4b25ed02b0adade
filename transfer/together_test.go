// SPDX-License-Identifier: MIT

package transfer_test

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/locking"
	"shop/locking/locktest"
	"shop/transfer"
)

// inside counts the transfers, of n, that are between their grant and the end of their COMMIT.
// The first ones wait there until all n have requested a grant.
type inside struct {
	n            int32
	begun        atomic.Int32
	all          chan struct{}
	now, meeting atomic.Int32
}

func (i *inside) failpoint(_ context.Context, step transfer.Step, _ string) {
	switch step {
	case transfer.BeforeAcquire:
		if i.begun.Add(1) == i.n {
			close(i.all)
		}
	case transfer.AfterAcquire:
		if i.now.Add(1) > 1 {
			i.meeting.Add(1)
		}
		<-i.all
	case transfer.AfterCommit:
		i.now.Add(-1)
	}
}

// Transfers that share one account, payer or payee, higher or lower, exclude each other by the
// lock. So without a fault the fence refuses none. If only one of the accounts were locked, or
// the transfer, the fence would have to refuse some.
func TestLock_IsOnBothAccountsAndHoldersThatAreNotLateAreNeverRefused(t *testing.T) {
	t.Parallel()
	const transfers = 24
	for _, strategy := range []string{"etcd-fenced", "etcd-fence-only"} {
		for _, shared := range []string{"payee", "payer"} {
			t.Run(strategy+"/"+shared, func(t *testing.T) {
				t.Parallel()
				in := &inside{n: transfers, all: make(chan struct{})}
				b := open(t, transfer.Config{Strategy: strategy, Failpoint: in.failpoint, Lock: locking.Options{MaxWait: 20 * time.Second}})
				replica, replicaEvents := b.another(b.replica())
				owner := uuid.New()
				ids := make([]uuid.UUID, transfers+1)
				for n := range ids {
					ids[n] = b.account(owner, 100)
				}
				slices.SortFunc(ids, func(x, y uuid.UUID) int { return bytes.Compare(x[:], y[:]) })
				const middle = transfers / 2 // the lower account of half the pairs, the higher one of the others
				common := ids[middle]
				var done []<-chan outcome
				for n, other := range slices.Delete(ids, middle, middle+1) {
					m := euros(other, common, 1)
					if shared == "payer" {
						m = euros(common, other, 1)
					}
					svc := []*transfer.Service{b.Service, replica}[n%2]
					req := newRequest(owner)
					done = append(done, locktest.Beside(func() (transfer.Reply, error) {
						return until(t.Context(), func(ctx context.Context) (transfer.Reply, error) { return svc.Transfer(ctx, req, m) })
					}))
				}
				for _, d := range done {
					if o := <-d; o.Err != nil || isRefused(o.Reply) {
						t.Errorf("%s, %v", o.Reply.Body, o.Err)
					}
				}
				if n := b.events.Of(transfer.FenceRefused) + replicaEvents.Of(transfer.FenceRefused); n != 0 {
					t.Errorf("%d rightful holders refused by the fence", n)
				}
				if n := in.meeting.Load(); n != 0 {
					t.Errorf("%d got the lock while another held it", n)
				}
				b.mustHave(common, 100+map[string]int64{"payee": transfers, "payer": -transfers}[shared], 0)
				b.mustHold()
			})
		}
	}
}
