// SPDX-License-Identifier: MIT

package wrong

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Put writes key under a lease, and takes that for a lock. A put compares nothing: each one succeeds. Only a
// transaction that compares the key's revision with 0 tells who was first.
func Put(ctx context.Context, client *clientv3.Client, key, owner string, ttl time.Duration) (taken bool, err error) {
	lease, err := client.Grant(ctx, int64(ttl.Seconds()))
	if err != nil {
		return false, err
	}
	_, err = client.Put(ctx, key, owner, clientv3.WithLease(lease.ID))
	return err == nil, err
}
