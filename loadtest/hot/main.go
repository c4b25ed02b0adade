// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/jackc/pgx/v5"

	bench "shop/loadtest/rows"
)

type settings struct {
	pairs    int
	interval time.Duration
	only     string
	plans    bool
	out      string
	child    string // "": this is the parent
	empty    string
}

func main() {
	var s settings
	flag.IntVar(&s.pairs, "pairs", 10, "how often each comparison runs")
	flag.DurationVar(&s.interval, "interval", 500*time.Millisecond, "for which clients start requests, in each measurement")
	flag.StringVar(&s.only, "only", "", "only the rows whose name begins with this, such as product/32")
	flag.BoolVar(&s.plans, "explain", false, "only print how long the statements of a batch take in PostgreSQL, and their foreign keys")
	flag.StringVar(&s.out, "out", "report/bench.json", "the file for all rows")
	flag.StringVar(&s.child, "child", "", "for this program alone: be one of several processes, as this JSON says")
	flag.StringVar(&s.empty, "empty", "", "for this program alone: serve the API without a domain, as this JSON says")
	flag.Parse()
	logging.Disable() // go-redis logs what is cut off when a client is closed
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "hot:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if s.child != "" {
		return beChild(ctx, s.child)
	}
	if s.empty != "" {
		return beEmpty(ctx, s.empty)
	}
	if s.pairs < 1 || s.interval <= 0 {
		return errors.New("--pairs and --interval must be above 0")
	}
	for _, name := range []string{"SHOP_POSTGRES_URL", "SHOP_REDIS_URL", "SHOP_ETCD_ENDPOINTS", "SHOP_MONGO_URL"} {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set: start the servers with make hot", name)
		}
	}
	if s.plans {
		return s.explain(ctx, os.Stdout)
	}
	version, err := postgresVersion(ctx)
	if err != nil {
		return err
	}
	fmt.Println("PostgreSQL", version)
	var rows []bench.Row
	fmt.Printf("ratios of %d pairs: median [without the smallest and the largest]\n%s\n", s.pairs, bench.Header())
	for _, c := range cases() {
		if !strings.HasPrefix(c.String(), s.only) {
			continue
		}
		r, err := s.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		fmt.Println(r)
		rows = append(rows, r)
	}
	for _, line := range bench.Growth(rows) {
		fmt.Println(line)
	}
	if err := bench.Write(s.out, rows); err != nil {
		return err
	}
	return s.limits(ctx)
}

// postgresVersion returns the version of the server under measurement, such as "18.6".
func postgresVersion(ctx context.Context) (version string, err error) {
	conn, err := pgx.Connect(ctx, os.Getenv("SHOP_POSTGRES_URL"))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	return conn.PgConn().ParameterStatus("server_version"), nil
}

// comparison is a row to be: a strategy and its baseline under one load.
type comparison struct {
	Case      string
	Strategy  string
	Baseline  string
	Clients   int
	Processes int
	Work      time.Duration // of each request, inside its transaction
}

func (c comparison) String() string {
	return fmt.Sprintf("%s/%d/%d/%v", c.Case, c.Clients, c.Processes, c.Work)
}

func cases() (all []comparison) {
	for _, flow := range []struct{ name, baseline string }{{"product", "row"}, {"account", "row"}, {"wallet", "lockid"}} {
		for _, work := range []time.Duration{0, time.Millisecond} {
			for _, clients := range []int{1, 32, 256, clientsMax} {
				all = append(all, comparison{flow.name, "combined", flow.baseline, clients, 1, work})
			}
			for _, clients := range []int{3, 33, 255, 1023} { // the nearest that three can divide
				all = append(all, comparison{flow.name, "combined", flow.baseline, clients, 3, work})
			}
		}
	}
	all = append(all,
		comparison{"wallet", "combined", noQueue, 32, 1, 0}, comparison{"wallet", "combined", noQueue, 33, 3, 0},
		comparison{"wallet", "combined", "lockid", 32, 1, 10 * time.Millisecond}, comparison{"wallet", "combined", "lockid", 33, 3, 10 * time.Millisecond})
	return append(all,
		comparison{"product", "combined", "redis+row", 1, 1, 0}, comparison{"account", "combined", "etcd-fenced", 1, 1, 0},
		comparison{"many", "combined", "redis+row", 32, 1, 0},
		comparison{"http-product", "combined", emptyPOST, 256, 3, 0}, comparison{"http-product", "combined", "row", 256, 3, 0})
}

// measure runs the pairs of a comparison.
func (s settings) measure(ctx context.Context, c comparison) (r bench.Row, err error) {
	place, drop, err := prepare(ctx, c.Case)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	var runs [2][]bench.Sample
	for i := range s.pairs {
		for n := range 2 {
			of := (n + i) % 2
			one, err := load(ctx, place, c, []string{c.Strategy, c.Baseline}[of], s.interval)
			if err != nil {
				return r, err
			}
			runs[of] = append(runs[of], one)
		}
	}
	if err := check(ctx, place); err != nil {
		return r, err
	}
	r = bench.Row{Case: c.Case, Strategy: c.Strategy, Clients: c.Clients, Processes: c.Processes, WorkMS: c.Work.Seconds() * 1000, Baseline: c.Baseline}
	r.Fill(runs[0], runs[1])
	return r, nil
}
