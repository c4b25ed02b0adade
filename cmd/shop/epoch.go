package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"shop/locking/etcdlock"
	"shop/transfer"
)

// epochCmd is for an operator who knows that the etcd that was is gone: its data
// was wiped, or is a backup, and its fences begin at a number that the accounts
// have seen long ago. Until he says so, every transfer is refused as fence-source.
type epochCmd struct {
	database     `embed:""`
	etcdSettings `embed:""`
}

// Validate finds what cannot work before anything is touched.
func (c *epochCmd) Validate() error {
	if len(c.EtcdEndpoints) == 0 {
		return errors.New("no etcd: set --etcd-endpoints or SHOP_ETCD_ENDPOINTS, as in 127.0.0.1:2379")
	}
	return c.database.Validate()
}

// Run names the source anew first: from then on nobody acquires in the name of an
// old one, and the accounts are handed over under their row locks. If it is
// interrupted, run it again.
func (c *epochCmd) Run(ctx context.Context, out io.Writer) error {
	pool, err := c.open(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := checkMigrated(ctx, pool); err != nil {
		return err
	}
	client, err := c.connect()
	if err != nil {
		return err
	}
	defer client.Close()
	bounded, cancel := context.WithTimeout(ctx, connectWait)
	defer cancel()
	_, now, err := etcdlock.NewEpoch(bounded, client, c.LockPrefix)
	if err != nil {
		return fmt.Errorf("fence-epoch: %w", err)
	}
	sources, err := transfer.Sources(ctx, pool)
	if err != nil {
		return err
	}
	delete(sources, "") // nobody has fenced these: they take the first that comes
	delete(sources, now)
	for _, was := range slices.Sorted(maps.Keys(sources)) {
		accounts, err := transfer.NewEpoch(ctx, pool, was, now)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d accounts: fenced by %s until now, by %s from now on\n", accounts, was, now)
	}
	fmt.Fprintln(out, "restart every shop serve and shop batch: those that run know the old source only")
	return nil
}
