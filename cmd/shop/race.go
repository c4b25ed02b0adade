// SPDX-License-Identifier: MIT

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
	stores       `embed:""`
	etcdSettings `embed:""`
	killFlag     `embed:""`
	RedisURL     string    `name:"redis-url" env:"SHOP_REDIS_URL" placeholder:"URL" help:"Redis, as in redis://host:6379/0."`
	Flow         string    `default:"inventory" help:"inventory (PostgreSQL, Redis), transfer (PostgreSQL, etcd) or wallet (PostgreSQL, MongoDB)."`
	Strategy     []string  `help:"One or two strategies of the flow; without it a wrong and a right one."`
	Clients      int       `help:"Clients that send requests at the same time."`
	Size         int       `help:"Units of stock, payments, or credits."`
	Fault        lab.Fault `help:"none, pause (a replica stops for longer than the TTL of its lock), drop (a lock is deleted in the lock store), cut (the connections to the lock store are cut) or kill (Redis is ended, and comes back without the locks unless it keeps its data; needs --lab-kill). Default: the fault of the flow's default race."`
	Seed         uint32    `default:"1" help:"Decides when each client sends a request, how long each request works, and which requests meet the fault."`
	JSON         bool      `name:"json" help:"Print everything that was recorded."`
}

func (c *raceCmd) settings() lab.Settings {
	return lab.Settings{Seed: c.Seed, Flow: c.Flow, Strategies: c.Strategy, Clients: c.Clients, Size: c.Size, Fault: c.Fault}
}

// killFlag allows the fault kill.
type killFlag struct {
	LabKill string `name:"lab-kill" env:"SHOP_LAB_KILL" enum:",redis" default:"" placeholder:"SERVER" help:"redis: a race of the lab may end the Redis of --redis-url, for all that use it. Something must start it again: bin/local exec --restart, or the restart policy of a container."`
}

// Validate checks the settings before the command connects.
func (c *raceCmd) Validate() error {
	return errors.Join(c.stores.Validate(), checkURL("--redis-url", c.RedisURL), c.settings().Validate())
}

// Run prints the verdicts. It fails if a strategy broke an invariant.
func (c *raceCmd) Run(ctx context.Context, out io.Writer) error {
	config, err := labConfig(c.stores, c.etcdSettings, c.RedisURL, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	config.KillRedis = c.LabKill == "redis"
	race, err := lab.Open(ctx, config, c.settings())
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
	for _, l := range result.Lanes {
		if !l.Verdict.Holds {
			err = errors.Join(err, fmt.Errorf("race: %s broke an invariant", l.Strategy))
		}
	}
	if result.Error != "" {
		err = errors.Join(err, fmt.Errorf("race: %s", result.Error))
	}
	return err
}

// labConfig is the configuration of races.
func labConfig(s stores, etcd etcdSettings, redisURL string, log *slog.Logger) (lab.Config, error) {
	secure, err := etcd.tls()
	return lab.Config{
		PostgresURL: s.PostgresURL, RedisURL: redisURL, EtcdEndpoints: etcd.EtcdEndpoints, EtcdTLS: secure, MongoURL: s.MongoURL, LockPrefix: etcd.LockPrefix, Log: log,
	}, err
}

func printRace(out io.Writer, result *lab.Result) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "strategy\tper s\tp50 ms\tp99 ms\tlock p99 ms\tleases lost\tfaults\tverdict")
	for _, l := range result.Lanes {
		s := l.Samples[len(l.Samples)-1]
		fmt.Fprintf(table, "%s\t%.0f\t%.1f\t%.1f\t%.1f\t%d\t%d\t%s\n", l.Strategy, s.PerSecond, s.P50, s.P99, s.Wait99, s.Lost, s.Faults, l.Verdict.Text)
	}
	return table.Flush()
}
