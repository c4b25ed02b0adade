package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"

	"shop/cmd/shop/lab"
)

// raceCmd runs the race of the lab page.
type raceCmd struct {
	database   `embed:""`
	RedisURL   string    `name:"redis-url" env:"SHOP_REDIS_URL" required:"" placeholder:"URL" help:"Redis, as in redis://host:6379/0."`
	LockPrefix string    `name:"lock-prefix" env:"SHOP_LOCK_PREFIX" default:"shop" help:"Prefix of the lock names in Redis."`
	Strategy   []string  `default:"naive,redis+row" help:"How stock is taken; one or two."`
	Clients    int       `default:"32" help:"Buyers that buy at the same time."`
	Stock      int       `default:"100" help:"Units to sell."`
	Fault      lab.Fault `default:"none" help:"none, pause (the holder of the lock stops for longer than its TTL) or drop (its key is deleted in Redis)."`
	Seed       uint32    `default:"1" help:"Decides when each buyer buys, how long a purchase takes, and which ones meet the fault."`
	JSON       bool      `name:"json" help:"Print everything that was recorded."`
}

func (c *raceCmd) settings() lab.Settings {
	return lab.Settings{Seed: c.Seed, Strategies: c.Strategy, Clients: c.Clients, Stock: c.Stock, Fault: c.Fault}
}

// Validate checks the settings before the command connects.
func (c *raceCmd) Validate() error {
	return errors.Join(c.database.Validate(), c.settings().Validate())
}

// Run prints the verdicts. It fails if a strategy broke an invariant.
func (c *raceCmd) Run(ctx context.Context, out io.Writer) error {
	race, err := lab.Open(ctx, lab.Config{
		PostgresURL: c.PostgresURL, RedisURL: c.RedisURL, LockPrefix: c.LockPrefix, Log: slog.New(slog.DiscardHandler),
	}, c.settings())
	if err != nil {
		return &usageError{err}
	}
	defer race.Close()
	result, err := race.Run(ctx, func(lab.Progress) {})
	if err != nil {
		return err
	}
	if c.JSON {
		err = json.NewEncoder(out).Encode(result)
	} else {
		err = printRace(out, result)
	}
	if err == nil && !result.Holds() {
		err = errors.New("race: an invariant is broken")
	}
	return err
}

func printRace(out io.Writer, result *lab.Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "strategy\tper s\tp50 ms\tp99 ms\tlock p99 ms\tlost\tfaults\tverdict")
	for _, l := range result.Lanes {
		s := l.Samples[len(l.Samples)-1]
		fmt.Fprintf(table, "%s\t%.0f\t%.1f\t%.1f\t%.1f\t%d\t%d\t%s\n", l.Strategy, s.PerSecond, s.P50, s.P99, s.Wait99, s.Lost, s.Faults, l.Verdict.Text)
	}
	return table.Flush()
}
