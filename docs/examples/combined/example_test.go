// SPDX-License-Identifier: MIT

// Package combined_test is an example to copy: one transaction for all requests that wait for a hot row.
package combined_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking"
	"shop/locking/combine"
	"shop/locking/pglock"
	"shop/locking/redislock"
)

// seats gives each buyer of a batch a seat. A buyer that has one already, from a COMMIT that was not answered, keeps it.
// The seats are not limited: beyond a limit, return Result[int]{Err: errSoldOut} for a buyer.
func seats(pool *pgxpool.Pool) func(context.Context, locking.Lease, []string) ([]combine.Result[int], error) {
	return func(ctx context.Context, _ locking.Lease, buyers []string) (results []combine.Result[int], err error) {
		err = pglock.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, `SELECT FROM example_shows WHERE name = 'hamlet' FOR UPDATE`); err != nil {
				return err
			}
			rows, _ := tx.Query(ctx, `
				INSERT INTO example_seats (buyer) SELECT unnest($1::text[]) ON CONFLICT (buyer) DO UPDATE SET buyer = EXCLUDED.buyer
				RETURNING seat`, buyers) // CollectRows returns its error
			numbers, err := pgx.CollectRows(rows, pgx.RowTo[int])
			for _, seat := range numbers {
				results = append(results, combine.Result[int]{Answer: seat})
			}
			return err
		})
		return results, err
	}
}

func Example() {
	ctx := context.Background()
	client, pool := must(redislock.Connect(os.Getenv("SHOP_REDIS_URL"), 5*time.Second)), must(pgxpool.New(ctx, os.Getenv("SHOP_POSTGRES_URL")))
	defer client.Close()
	defer pool.Close()
	must(pool.Exec(ctx, `DROP TABLE IF EXISTS example_shows, example_seats; CREATE TABLE example_shows AS SELECT 'hamlet' AS name;
		CREATE TABLE example_seats (seat serial, buyer text PRIMARY KEY)`))
	store := must(redislock.New(client, 5*time.Second, redislock.Options{Prefix: "combined"}))
	defer store.Close()
	buyers := must(combine.New(combine.Config[string, int]{Store: store, Apply: seats(pool), Guarded: true, Key: func(b string) string { return b }}))
	defer buyers.Close()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { must(buyers.Do(ctx, fmt.Sprint("buyer ", i), "show/hamlet")) })
	}
	all.Wait()
	var sold, last int
	err := pool.QueryRow(ctx, `SELECT count(*), count(DISTINCT seat) FROM example_seats`).Scan(&sold, &last)
	fmt.Println(sold, "buyers,", last, "seats", err)
	// Output: 100 buyers, 100 seats <nil>
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
