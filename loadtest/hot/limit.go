// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"

	bench "shop/loadtest/rows"
)

// limited are the loads whose distance to the physical limit is measured.
var limited = []comparison{
	{Case: "product", Clients: 32, Processes: 1},
	{Case: "product", Clients: 256, Processes: 1},
	{Case: "product", Clients: clientsMax, Processes: 1},
	{Case: "account", Clients: 256, Processes: 1},
	{Case: "wallet", Clients: 256, Processes: 1},
}

// distance is how far combined is from one sync of the log for each batch.
type distance struct {
	Requests, Batches float64 // in a second
	Commit            float64 // seconds, of one row that is inserted alone on one connection
}

func limitHeader() string {
	return fmt.Sprintf("\n%-28s %11s %11s %14s %13s %12s %15s\n",
		"combined, beside its limit", "requests/s", "batches/s", "requests/batch", "one commit ms", "commits/s", "batches/commits")
}

func (d distance) String() string {
	return fmt.Sprintf("%11.0f %11.0f %14.1f %13.2f %12.0f %13.0f %%", d.Requests, d.Batches, d.Requests/d.Batches, d.Commit*1000, 1/d.Commit, 100*d.Batches*d.Commit)
}

// limits prints the distances of the loads that --only names.
func (s settings) limits(ctx context.Context) error {
	header := limitHeader()
	for _, c := range limited {
		if !strings.HasPrefix(c.String(), s.only) {
			continue
		}
		fmt.Print(header)
		header = ""
		d, err := s.limit(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		fmt.Printf("%-28s %s\n", c, d)
	}
	return nil
}

// limit measures batches and commits in turns, since other programs on the machine slow down both, and returns the medians.
func (s settings) limit(ctx context.Context, c comparison) (d distance, err error) {
	place, drop, err := prepare(ctx, c.Case)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	var requests, batches, commits []float64
	for range s.pairs {
		var before, after int
		sample, err := turn{place, "combined", c.Clients, c.Work, s.interval}.run(ctx, func() (err error) { before, err = transactions(ctx, place); return err })
		if err == nil {
			after, err = transactions(ctx, place)
		}
		if err != nil {
			return d, err
		}
		requests, batches = append(requests, sample.PerSecond()), append(batches, float64(after-before)/sample.Over.Seconds())
		one, err := commit(ctx, place, s.interval/2)
		if err != nil {
			return d, err
		}
		commits = append(commits, one.Seconds())
	}
	_, d.Requests, _ = bench.Interval(requests)
	_, d.Batches, _ = bench.Interval(batches)
	_, d.Commit, _ = bench.Interval(commits)
	return d, check(ctx, place)
}

// transactions returns how many transactions have made what is stored. Rows that one transaction has inserted have one xmin.
// The operations of a batch on a wallet have the time of its only write to the wallet, and batches take longer than
// the millisecond of a time.
func transactions(ctx context.Context, p place) (n int, err error) {
	if p.Case != "wallet" {
		conn, err := pgx.Connect(ctx, p.Postgres)
		if err != nil {
			return 0, err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		table := map[string]string{"product": "orders", "account": "transfers"}[p.Case]
		return n, conn.QueryRow(ctx, "SELECT count(DISTINCT xmin::text) FROM "+table).Scan(&n)
	}
	db, err := p.mongo()
	if err != nil {
		return 0, err
	}
	defer func() { _ = db.Client().Disconnect(ctx) }()
	var times []any
	err = db.Collection("wallet_operations").Distinct(ctx, "createdAt", bson.D{}).Decode(&times)
	return len(times), err
}

// commit returns the time of a transaction that inserts one row, with those that it repeats for over. Its round trip is to
// the same machine, so that the sync of the log is most of it.
func commit(ctx context.Context, p place, over time.Duration) (time.Duration, error) {
	insert, done, err := p.inserter(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	start, n := time.Now(), 0
	for n == 0 || time.Since(start) < over {
		if err := insert(); err != nil {
			return 0, err
		}
		n++
	}
	return time.Since(start) / time.Duration(n), nil
}

// inserter returns a function that inserts one row, or document, and returns when it is durable.
func (p place) inserter(ctx context.Context) (insert func() error, done func(), err error) {
	if p.Case == "wallet" {
		db, err := p.mongo()
		if err != nil {
			return nil, nil, err
		}
		return func() error {
			_, err := db.Collection("commits").InsertOne(ctx, bson.D{}) // a majority has it in its journal
			return err
		}, func() { _ = db.Client().Disconnect(context.WithoutCancel(ctx)) }, nil
	}
	conn, err := pgx.Connect(ctx, p.Postgres)
	if err != nil {
		return nil, nil, err
	}
	insert = func() error { _, err := conn.Exec(ctx, "INSERT INTO commits DEFAULT VALUES"); return err }
	done = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	if _, err := conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS commits (n integer)"); err != nil {
		done()
		return nil, nil, err
	}
	return insert, done, nil
}
