// SPDX-License-Identifier: MIT

package etcdlock_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/locking"
	"shop/locking/etcdlock"
)

// One lease holds both accounts of a transfer. The fence is checked in the transaction
// that moves the money.
func Example() {
	ctx := context.Background()
	client, err := clientv3.New(etcdlock.Config(strings.Split(os.Getenv("SHOP_ETCD_ENDPOINTS"), ",")...))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store, err := etcdlock.New(ctx, client, 5*time.Second, etcdlock.Options{Prefix: "example"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	accounts := []string{"account/2", "account/1"}
	err = locking.Do(ctx, store, locking.Options{}, accounts, func(ctx context.Context, l locking.Lease) error {
		// UPDATE accounts SET fence = $2 WHERE id = $1 AND fence <= $2 …
		fmt.Println(l.Keys, l.Fence > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// [account/1 account/2] true
	// <nil>
}
