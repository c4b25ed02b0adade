package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

type settings struct {
	pairs    int
	interval time.Duration
	only     string
	out      string
	child    string // "": this is the parent
}

func main() {
	var s settings
	flag.IntVar(&s.pairs, "pairs", 10, "how often each comparison runs")
	flag.DurationVar(&s.interval, "interval", 500*time.Millisecond, "for which clients start requests, in each measurement")
	flag.StringVar(&s.only, "only", "", "only the rows whose name begins with this, such as product/32")
	flag.StringVar(&s.out, "out", "report/bench.json", "the file for all rows")
	flag.StringVar(&s.child, "child", "", "for this program alone: be one of several processes, as this JSON says")
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
	if s.pairs < 1 || s.interval <= 0 {
		return errors.New("--pairs and --interval must be above 0")
	}
	for _, name := range []string{"SHOP_POSTGRES_URL", "SHOP_REDIS_URL", "SHOP_ETCD_ENDPOINTS"} {
		if os.Getenv(name) == "" {
			return fmt.Errorf("%s is not set: start the servers with make hot", name)
		}
	}
	var rows []row
	fmt.Printf("ratios of %d pairs: median [without the smallest and the largest]\n%-28s %-10s %22s %9s %9s %9s %9s  %s\n",
		s.pairs, "case/clients/processes/work", "strategy", "ratio", "/s", "base /s", "p99 ms", "base p99", "process min/max")
	for _, c := range cases() {
		if !strings.HasPrefix(c.String(), s.only) {
			continue
		}
		r, err := s.measure(ctx, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
		fmt.Println(r.text)
		rows = append(rows, r)
	}
	data, err := json.MarshalIndent(rows, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.out), 0o755)
	}
	if err == nil {
		err = os.WriteFile(s.out, append(data, '\n'), 0o644)
	}
	return err
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
	for _, name := range []string{"product", "account"} {
		for _, clients := range []int{1, 32, 256, 1024} {
			all = append(all, comparison{name, "combined", "row", clients, 1, 0})
		}
		all = append(all, comparison{name, "combined", "row", 256, 3, 0}, comparison{name, "combined", "row", 32, 1, time.Millisecond})
	}
	return append(all, comparison{"many", "combined", "redis+row", 32, 1, 0})
}

// row is a line of report/bench.json.
type row struct {
	Case        string  `json:"case"`
	Strategy    string  `json:"strategy"`
	Clients     int     `json:"clients"`
	Processes   int     `json:"processes"`
	WorkMS      float64 `json:"work_ms"`
	PerSecond   float64 `json:"per_second"`
	P50         float64 `json:"p50_ms"`
	P99         float64 `json:"p99_ms"`
	Baseline    string  `json:"baseline"`
	Ratio       float64 `json:"ratio"`
	Low         float64 `json:"low"`
	High        float64 `json:"high"`
	BaselineP99 float64 `json:"baseline_p99_ms"`
	Fairness    float64 `json:"fairness"` // the fewest requests of a process divided by the most; 1 with one process
	text        string
}

// measure runs the pairs of a comparison.
func (s settings) measure(ctx context.Context, c comparison) (r row, err error) {
	place, drop, err := prepare(ctx, c.Case)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, drop()) }()
	var runs [2][]sample
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
	var ratios []float64
	for i := range s.pairs {
		ratios = append(ratios, runs[0][i].perSecond()/runs[1][i].perSecond())
	}
	low, median, high := interval(ratios)
	r = row{
		Case: c.Case, Strategy: c.Strategy, Clients: c.Clients, Processes: c.Processes, WorkMS: c.Work.Seconds() * 1000, Baseline: c.Baseline,
		Ratio: median, Low: low, High: high,
		PerSecond: middle(runs[0], sample.perSecond), P50: middle(runs[0], sample.p50), P99: middle(runs[0], sample.p99),
		BaselineP99: middle(runs[1], sample.p99), Fairness: middle(runs[0], sample.fairness),
	}
	r.text = fmt.Sprintf("%-28s %-10s %6.2f [%5.2f, %5.2f] %9.0f %9.0f %9.1f %9.1f  %.2f",
		c, c.Strategy, median, low, high, r.PerSecond, middle(runs[1], sample.perSecond), r.P99, r.BaselineP99, r.Fairness)
	return r, nil
}
