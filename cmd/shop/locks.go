// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"shop/locking/held"
	"shop/locking/redislock"
)

// locksCmd lists the locks that exist, and ends one. The shop may run at the same time.
type locksCmd struct {
	database     `embed:""`
	etcdSettings `embed:""`
	RedisURL     string `name:"redis-url" env:"SHOP_REDIS_URL" placeholder:"URL" help:"Redis, as in redis://host:6379/0."`
	End          string `name:"end" placeholder:"STORE KEY" help:"Free this key, as in \"redis product/APPLE\": of a holder that hangs, or a lock without a TTL. The holder hears of it at its next renewal; a fence refuses what it writes, and a row lock makes it wait."`
}

// Validate checks the settings before the command connects.
func (c *locksCmd) Validate() error {
	if c.RedisURL == "" && len(c.EtcdEndpoints) == 0 && c.PostgresURL == "" {
		return errors.New("no store: set --redis-url, --etcd-endpoints or --postgres-url")
	}
	if c.RedisURL != "" {
		if err := checkURL("--redis-url", c.RedisURL); err != nil {
			return err
		}
	}
	if c.PostgresURL != "" {
		if err := c.database.Validate(); err != nil {
			return err
		}
	}
	if store, key, _ := strings.Cut(c.End, " "); c.End != "" && (key == "" || !slices.Contains([]string{"redis", "etcd", "postgres"}, store)) {
		return fmt.Errorf("--end %q: want a store and a key, as in \"redis product/APPLE\"; the stores are redis, etcd and postgres", c.End)
	}
	return nil
}

// Run prints a table: a lock without a TTL is an alert. With --end it frees one key instead.
func (c *locksCmd) Run(ctx context.Context, std stdio) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stores, closeAll, err := c.stores(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	if c.End != "" {
		return c.end(ctx, std, stores)
	}
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "store\tkey\towner\tfence\tleft\twaiters")
	endless, failed := 0, error(nil)
	for _, name := range slices.Sorted(maps.Keys(stores)) {
		locks, err := stores[name].List(ctx)
		failed = errors.Join(failed, err) // the other stores are listed all the same
		for _, l := range locks {
			left := l.Left.Round(time.Millisecond).String()
			if l.Left < 0 {
				left, endless = "no TTL", endless+1
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%d\n", name, l.Key, l.Owner, l.Fence, left, l.Waiters)
		}
	}
	failed = errors.Join(failed, table.Flush())
	if endless > 0 {
		failed = errors.Join(failed, fmt.Errorf("locks without a TTL: %d. Nothing frees one when its holder dies: end it with --end, and find what wrote it", endless))
	}
	return failed
}

// end frees one key.
func (c *locksCmd) end(ctx context.Context, std stdio, stores map[string]held.Store) error {
	name, key, _ := strings.Cut(c.End, " ")
	store := stores[name]
	if store == nil {
		return &usageError{fmt.Errorf("--end %s: its store is not set", name)}
	}
	ended, err := store.End(ctx, key)
	if err != nil {
		return err
	}
	if !ended {
		return fmt.Errorf("%q is free in %s already", key, name)
	}
	fmt.Fprintf(std.out, "%s in %s is free\n", key, name)
	return nil
}

// stores connects to the stores that are set.
func (c *locksCmd) stores(ctx context.Context) (stores map[string]held.Store, closeAll func(), err error) {
	stores = map[string]held.Store{}
	var opened []func()
	closeAll = func() {
		for _, f := range opened {
			f()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	if c.PostgresURL != "" {
		pool, err := c.open(ctx, 1)
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, pool.Close)
		stores["postgres"] = held.Postgres{Pool: pool}
	}
	if c.RedisURL != "" {
		client, err := redislock.Connect(c.RedisURL, time.Minute) // its limits are for a request
		if err != nil {
			return nil, closeAll, &usageError{fmt.Errorf("--redis-url: %w", err)}
		}
		opened = append(opened, func() { _ = client.Close() })
		stores["redis"] = held.Redis{Client: client, Options: redislock.Options{Prefix: c.LockPrefix}}
	}
	if len(c.EtcdEndpoints) > 0 {
		client, err := c.connect()
		if err != nil {
			return nil, closeAll, err
		}
		opened = append(opened, func() { _ = client.Close() })
		stores["etcd"] = held.Etcd{Client: client, Prefix: c.LockPrefix}
	}
	return stores, closeAll, nil
}
