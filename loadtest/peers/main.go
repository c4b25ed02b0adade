// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	bench "shop/loadtest/rows"
)

type settings struct {
	pairs    int
	interval time.Duration
	waiters  int
	server   string
	ours     string
	free     bool
	lock     bool
	out      string
	child    string
	key      string
	counter  string
}

func main() {
	var s settings
	flag.IntVar(&s.pairs, "pairs", 10, "how often each comparison runs")
	flag.DurationVar(&s.interval, "interval", 300*time.Millisecond, "length of a measurement; one key is wanted for three times as long")
	flag.IntVar(&s.waiters, "waiters", 64, "goroutines that want one key")
	flag.StringVar(&s.server, "server", "", "only rivals on this server: redis, etcd, postgres, mysql, mongo or zookeeper")
	flag.StringVar(&s.ours, "ours", "", "only this lock of the repository, as \"redisqueue fair\"")
	flag.BoolVar(&s.free, "free", false, "only the time of a free key")
	flag.BoolVar(&s.lock, "lock", false, "only locking/combine against the peers on all servers")
	flag.StringVar(&s.out, "out", "report/bench.json", "the file to which the rows of --lock are added")
	flag.StringVar(&s.child, "child", "", "for this program alone: contend as one of several processes")
	flag.StringVar(&s.key, "key", "", "for this program alone: the key that the processes want")
	flag.StringVar(&s.counter, "counter", "", "for this program alone: the file in which the holders count")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	if s.child != "" {
		return beChild(ctx, s.child, s.key, s.counter, s.waiters, s.interval)
	}
	if s.pairs < 1 || s.interval <= 0 || s.waiters < 1 {
		return errors.New("--pairs, --interval and --waiters must be above 0")
	}
	for _, name := range []string{"SHOP_REDIS_URL", "SHOP_ETCD_ENDPOINTS", "SHOP_POSTGRES_URL", "SHOP_MONGO_URL", "SHOP_STACK"} {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set: start the servers with make peers", name)
		}
	}
	stop, err := startZooKeeper(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return withMariaDB(func() error { return s.measure(ctx) })
}

// measure prints what was asked for.
func (s settings) measure(ctx context.Context) error {
	if s.lock {
		return s.lockRows(ctx)
	}
	for _, us := range rivals {
		if !us.ours || s.server != "" && us.server != s.server || s.ours != "" && us.name != s.ours {
			continue
		}
		if err := s.compare(ctx, us); err != nil {
			return fmt.Errorf("%s: %w", us.name, err)
		}
	}
	return nil
}

// compare prints a row for each rival of us.
func (s settings) compare(ctx context.Context, us rival) error {
	requests, err := newRequestCounter(ctx, us.server)
	if err != nil {
		return err
	}
	defer requests.close()
	fmt.Printf("%s: figures of %d pairs, as their median [without the smallest and the largest]\n", us.name, s.pairs)
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "against\twhat\tratio\tours\tits\t\tfairness: ours\tits\trequests: ours\tits\tCPU µs: ours\tits\t")
	for _, them := range rivals {
		if them.ours || them.server != us.server {
			continue
		}
		if err := s.rows(ctx, table, us, them, requests); err != nil {
			return fmt.Errorf("against %s: %w", them.name, err)
		}
	}
	err = table.Flush()
	fmt.Println()
	return err
}

// rows measures one rival against us.
func (s settings) rows(ctx context.Context, table io.Writer, us, them rival, requests requestCounter) error {
	var free paired
	for range s.pairs {
		medians, err := s.freeKey(ctx, us, them)
		if err != nil {
			return err
		}
		for of := range medians {
			free[of] = append(free[of], medians[of])
		}
	}
	fmt.Fprintf(table, "%s\ttake and release a free key\t%s\tµs\t\t\t\t\t\t\t\n", them.name, free)

	if s.free {
		return nil
	}
	return s.contestRows(ctx, table, us, them, requests)
}

// contestRows measures how a rival and we hand one key on.
func (s settings) contestRows(ctx context.Context, table io.Writer, us, them rival, requests requestCounter) error {
	both, end, err := s.open(ctx, us, them, s.waiters)
	if err != nil {
		return err
	}
	defer end()
	over := contestTakes * s.interval
	goroutines := func(of int) (contest, error) {
		before, err := requests.count(ctx)
		if err != nil {
			return contest{}, err
		}
		c, err := alone(ctx, both[of], s.waiters, over)
		if err != nil {
			return c, err
		}
		after, err := requests.count(ctx)
		c.Requests = after - before
		return c, err
	}
	processes := func(n int) func(of int) (contest, error) {
		return func(of int) (contest, error) { return among(ctx, []rival{us, them}[of], n, perProcess, over) }
	}
	contests := []struct {
		what    string
		measure func(of int) (contest, error)
	}{
		{fmt.Sprintf("%d goroutines, one key", s.waiters), goroutines},
		{"2 processes, one key", processes(2)},
		{"4 processes, one key", processes(4)},
	}
	if !slices.Contains(ofItsKind[us.name], them.name) {
		contests = contests[:1]
	}
	for _, a := range contests {
		var seen [2][]contest
		hot, err := pairs(s.pairs, func(of int) (float64, error) {
			c, err := a.measure(of)
			seen[of] = append(seen[of], c)
			return c.perSecond(), err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t/s\t", them.name, a.what, hot)
		for _, figure := range []func(contest) float64{contest.fairness, contest.requests, contest.cpu} {
			for of := range seen {
				fmt.Fprintf(table, "%s\t", column(figures(seen[of], figure)))
			}
		}
		fmt.Fprintln(table)
	}
	return nil
}

// freeKey is one pair of measurements of a free key, with new connections.
func (s settings) freeKey(ctx context.Context, us, them rival) (medians [2]float64, err error) {
	both, end, err := s.open(ctx, us, them, 1)
	if err != nil {
		return medians, err
	}
	defer end()
	return uncontended(ctx, both, 2*s.interval)
}

// open opens both locks, and lets goroutines contend for a moment: they connect, and load scripts and statements.
func (s settings) open(ctx context.Context, us, them rival, goroutines int) (both [2]locker, end func(), err error) {
	var opened []locker
	end = func() {
		for _, l := range opened {
			l.close()
		}
	}
	for of, r := range []rival{us, them} {
		l, err := r.open(ctx)
		if err != nil {
			end()
			return both, nil, err
		}
		both[of], opened = l, append(opened, l)
		if _, err := alone(ctx, l, goroutines, s.interval/4); err != nil {
			end()
			return both, nil, err
		}
	}
	return both, end, nil
}

// column is the median and the interval, or empty if they were not measured.
func column(figures []float64) string {
	low, median, high := bench.Interval(figures)
	if median < 0 {
		return ""
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", median, low, high)
}

func figures(contests []contest, figure func(contest) float64) (list []float64) {
	for _, c := range contests {
		list = append(list, figure(c))
	}
	return list
}

// paired are the measurements of ours (0) and of the peer (1), in the order of the pairs.
type paired [2][]float64

// ratios are those of ours to the peer.
func (p paired) ratios() (list []float64) {
	for i := range p[0] {
		list = append(list, p[0][i]/p[1][i])
	}
	return list
}

// String is the ratio, and the median of each.
func (p paired) String() string {
	_, ours, _ := bench.Interval(p[0])
	_, its, _ := bench.Interval(p[1])
	return fmt.Sprintf("%s\t%.0f\t%.0f", column(p.ratios()), ours, its)
}

// pairs measures both, n times. The order in a pair alternates.
func pairs(n int, measure func(of int) (float64, error)) (p paired, err error) {
	for i := range n {
		order := []int{0, 1}
		if i%2 == 1 {
			slices.Reverse(order)
		}
		for _, of := range order {
			figure, err := measure(of)
			if err != nil {
				return p, err
			}
			p[of] = append(p[of], figure)
		}
	}
	return p, nil
}
