// SPDX-License-Identifier: MIT

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

// epochCmd makes the accounts accept a new etcd after the data of the old one was lost or
// restored from a backup. The fences of the new etcd start below those that the accounts
// have seen, so transfers are refused as fence-epoch until an operator runs this command.
type epochCmd struct {
	database     `embed:""`
	etcdSettings `embed:""`
}

// Validate checks the settings before the command connects.
func (c *epochCmd) Validate() error {
	if len(c.EtcdEndpoints) == 0 {
		return errors.New("no etcd: set --etcd-endpoints or SHOP_ETCD_ENDPOINTS, as in 127.0.0.1:2379")
	}
	return c.database.Validate()
}

// Run sets the new epoch first: from then on no lock is acquired in an old epoch. Then it
// moves the accounts to the new epoch under their row locks. It can be repeated after an
// interruption.
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
	epochs, err := transfer.Epochs(ctx, pool)
	if err != nil {
		return err
	}
	delete(epochs, "") // accounts without a fenced write accept any epoch
	delete(epochs, now)
	for _, was := range slices.Sorted(maps.Keys(epochs)) {
		accounts, err := transfer.NewEpoch(ctx, pool, was, now)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%d accounts: fenced by %s until now, by %s from now on\n", accounts, was, now)
	}
	fmt.Fprintln(out, "restart every shop serve and shop batch: running processes only know the old epoch")
	return nil
}
