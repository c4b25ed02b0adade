// SPDX-License-Identifier: MIT

// Command prove loads replicas of shop, injects faults into them and their servers, and audits the
// databases. The documentation of package loadtest describes what a proof is.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9/logging"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/compose/local/stack"
	"shop/loadtest"
	"shop/loadtest/report"
	"shop/loadtest/traffic"
)

// app holds the settings of a proof; --help is their documentation.
type app struct {
	PostgresURL string `name:"postgres-url" env:"SHOP_POSTGRES_URL" placeholder:"URL" help:"A PostgreSQL server on which databases may be created and dropped."`
	RedisURL    string `name:"redis-url" env:"SHOP_REDIS_URL" placeholder:"URL" help:"Redis, for the locks."`
	Etcd        string `name:"etcd-endpoints" env:"SHOP_ETCD_ENDPOINTS" placeholder:"HOST:PORT" help:"etcd, for the locks of accounts."`
	MongoURL    string `name:"mongo-url" env:"SHOP_MONGO_URL" placeholder:"URL" help:"A MongoDB replica set on which databases may be created and dropped."`
	Shop        string `env:"SHOP_PROGRAM" type:"path" placeholder:"FILE" help:"The program whose replicas are loaded. Default: shop, in the folder of this program."`
	Stack       string `env:"SHOP_STACK" placeholder:"DIR" help:"State folder of the local stack, which faults of servers need."`

	Flow     string        `help:"Only this flow: inventory, transfer or wallet."`
	Strategy string        `help:"Only this strategy."`
	Fault    string        `help:"Only this fault, as in the name of a scenario (FLOW/STRATEGY/FAULT): none, crash, lock-lost, late-write, step-down …"`
	Quick    bool          `help:"A part of the matrix, in about three minutes: every safe strategy without a fault, and the faults that show the most."`
	Replicas int           `default:"3" help:"Number of replicas under load."`
	Rate     int           `help:"New requests per second; half as many for wallets, for transfers under most faults, and for purchases in the whole matrix (for twice as long); fewer where a fault needs a longer load. Default: 200."`
	Duration time.Duration `help:"Length of the load of one scenario. Default: 8s, longer for some scenarios of the whole matrix; with --quick 6s, and 2s without a fault."`
	Grace    time.Duration `help:"Time after the load in which each key must be decided. Default: 20s."`
	Seed     int64         `help:"Seed of the load and of the pauses; the same seed gives the same load. Default: 1."`
	Out      string        `default:"report" type:"path" help:"Folder for prove.json and index.html, with a folder for the files of each scenario."`
	Keep     bool          `help:"Keep the databases of the scenarios."`
	JUnit    string        `name:"junit" type:"path" placeholder:"FILE" help:"Write the result as JUnit XML too."`
	Target   string        `placeholder:"FILE|URL,…" help:"Prove the service that this YAML file describes, or whose replicas have these addresses, instead of replicas of shop. --rate, --duration and --seed override the file. docs/ci.md is the manual."`
	Requests string        `placeholder:"FILE" help:"With --target URL: the YAML file that describes the rest. Default: prove.yaml."`
	AuditSQL string        `name:"audit-sql" placeholder:"FILE" help:"With --target: queries that must return no row, beside the audits of the YAML file."`

	args    []string      // the command line, without the program
	whole   bool          // all scenarios of at least one flow, with the default load
	calm    time.Duration // Duration without a fault; 0: the same
	Matrix  matrixFlags   `embed:"" group:"Crash matrix"`
	Nemesis nemesisFlags  `embed:"" group:"Nemesis"`
	Limits  limitFlags    `embed:"" group:"Linearizability"`

	Prove  struct{}      `cmd:"" default:"1" hidden:""`
	Check  checkCommand  `cmd:"" help:"Check histories of earlier runs again, without a server."`
	Faults faultsCommand `cmd:"" help:"Print which faults earlier runs injected, how often, and what held."`
}

// The defaults of --duration.
const (
	durationQuick = 6 * time.Second
	durationCalm  = 2 * time.Second // with --quick, without a fault: controls are caught within a second
	durationWhole = 8 * time.Second
)

// Validate rejects settings that cannot work, or that do not work together.
func (c *app) Validate() error {
	switch {
	case c.Rate < 0 || c.Duration < 0 || c.Grace < 0: // 0: not given, the default
		return errors.New("--rate must be at least 1, --duration and --grace above 0")
	case c.Replicas < 2:
		return errors.New("--replicas must be at least 2: a single replica cannot race with another")
	case c.Target == "" && (c.Requests != "" || c.AuditSQL != ""):
		return errors.New("--requests and --audit-sql are for --target")
	case c.Target != "" && (c.Strategy != "" || c.Flow != "" || c.Fault != "" || c.Quick):
		return errors.New("--strategy, --flow, --fault and --quick select scenarios of shop: a service given with --target has none")
	}
	if err := errors.Join(c.validateNemesis(), c.validateMatrix()); err != nil {
		return err
	}
	return c.Limits.validate()
}

func main() {
	logging.Disable() // go-redis also returns its connection errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	status, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "prove:", err)
	}
	os.Exit(status)
}

// The exit statuses.
const (
	asExpected = iota
	notAsExpected
	couldNotRun
)

// run is the whole program except for os.Exit, so that tests can call it.
func run(ctx context.Context, args []string, out, log io.Writer) (status int, err error) {
	var (
		c      app
		helped bool
	)
	parser, err := kong.New(&c, kong.Name("prove"), kong.Description(description+invariants()),
		kong.Writers(out, log), kong.Exit(func(int) { helped = true }))
	if err != nil {
		return couldNotRun, err
	}
	command, err := parser.Parse(args)
	switch {
	case helped:
		return asExpected, nil
	case err != nil:
		return couldNotRun, fmt.Errorf("%w\nsee prove --help", err)
	case strings.HasPrefix(command.Command(), "check"):
		return c.Check.run(ctx, out, c.Limits.limits())
	case strings.HasPrefix(command.Command(), "faults"):
		return c.Faults.run(out)
	}
	c.args = args
	return c.run(ctx, out, log)
}

// run loads, audits and reports.
func (c *app) run(ctx context.Context, out, log io.Writer) (status int, err error) {
	r, err := c.prove(ctx, newProgress(log))
	if r.Planned > 0 { // else no scenario was begun
		r.Origin = c.origin(context.WithoutCancel(ctx))
		err = errors.Join(err, c.write(out, r))
	}
	switch {
	case err != nil:
		return couldNotRun, fmt.Errorf("could not run: %w", err)
	case !r.AsExpected:
		why := "not as expected; see the marked lines above, and the report"
		for _, s := range r.Scenarios { // once more, for a log of which only the end is kept
			if !s.AsExpected {
				why += "\n" + s.Name() + ": " + s.Sentence()
			}
		}
		return notAsExpected, errors.New(why)
	}
	return asExpected, nil
}

// setDefaults sets the defaults of the scenarios of shop.
func (c *app) setDefaults() {
	c.whole = c.Rate == 0 && c.Duration == 0 && c.Strategy == "" && c.Fault == "" && !c.Quick && !c.Nemesis.Nemesis && !c.Matrix.Matrix
	c.Rate, c.Seed = cmp.Or(c.Rate, 200), cmp.Or(c.Seed, 1)
	if c.Nemesis.Nemesis {
		c.Duration = c.Nemesis.For
	}
	if c.Duration == 0 {
		c.Duration = durationWhole
		if c.Quick {
			c.Duration, c.calm = durationQuick, durationCalm
		}
	}
}

// write prints the table and writes the report, also of a run that was called off: the report of an
// earlier run in the folder would be taken for its result.
func (c *app) write(out io.Writer, r loadtest.Report) error {
	fmt.Fprintln(out)
	if err := errors.Join(report.Table(out, r), report.Write(c.Out, r)); err != nil {
		return err
	}
	if err := c.forCI(r); err != nil {
		return err
	}
	lines := r.Headline()
	if checked := r.Linearized(); checked != "" {
		lines += "\n" + checked
	}
	_, err := fmt.Fprintf(out, "\n%s\n%s\n%s\n", lines, filepath.Join(c.Out, "index.html"), filepath.Join(c.Out, "prove.json"))
	return err
}

func (c *app) prove(ctx context.Context, progress *progress) (loadtest.Report, error) {
	if c.Target != "" {
		return c.proveTarget(ctx, progress)
	}
	c.setDefaults()
	env := &environment{settings: c, private: map[string]*stack.Server{}, etcds: map[string]*clientv3.Client{}}
	defer env.close()
	matrix := env.matrix()
	switch {
	case c.Nemesis.Nemesis:
		matrix = c.nemeses(env.lessons())
	case c.Matrix.Matrix:
		matrix = c.crashMatrices(env.lessons())
	}
	scenarios, err := c.scenarios(matrix)
	if err != nil {
		return loadtest.Report{}, err
	}
	if err := env.check(scenarios); err != nil {
		return loadtest.Report{}, err
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { // fail before the work, not after it
		return loadtest.Report{}, err
	}
	proof := loadtest.Proof{
		Scenarios: scenarios,
		Load:      traffic.Load{Rate: c.Rate, Duration: c.Duration, Seed: c.Seed, Replicas: c.Replicas},
		Calm:      c.calm,
		Whole:     c.whole,
		Grace:     c.Grace,
		LockTTL:   lockTTLs,
		Server:    env.begin,
		Renew:     env.renew,
		Keep:      c.Keep,
		Out:       c.Out,
		Limits:    c.Limits.limits(),
		Prepare:   env.prepare,
		Program:   env.replica,
		Fault:     env.fault,
		Leftovers: env.leftovers,
		Figures:   env.figures,
		Monitor:   env.monitor,
		Done:      c.keepFailed(progress),
		Say:       progress.say,
		Tick:      progress.tick,
	}
	return proof.Run(ctx)
}

// scenarios selects scenarios from the matrix.
func (c *app) scenarios(matrix []loadtest.Scenario) ([]loadtest.Scenario, error) {
	chosen := loadtest.Only(matrix, c.Flow, c.Strategy, c.Fault)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no scenario has flow %q, strategy %q and fault %q (\"\" is any); the scenarios are:\n  %s", c.Flow, c.Strategy, c.Fault, names(matrix))
	}
	if !c.Quick {
		return chosen, nil
	}
	quick := loadtest.Quick(chosen)
	if len(quick) == 0 {
		return nil, fmt.Errorf("the selected scenarios are not part of --quick: leave --quick out to run them; the scenarios of --quick are:\n  %s", names(loadtest.Quick(matrix)))
	}
	return quick, nil
}

func names(scenarios []loadtest.Scenario) string {
	var list []string
	for _, s := range scenarios {
		list = append(list, s.Name())
	}
	return strings.Join(list, "\n  ")
}

// getServers describes how to start the servers that a proof needs.
const getServers = "start real servers for the duration of the proof with\n  make demo\nor with the commands that it runs:\n  go build -o bin/ ./cmd/shop ./loadtest/prove ./compose/local && bin/local exec -- bin/prove --quick"

// program returns the path of shop.
func (c *app) program() (string, error) {
	path := c.Shop
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), "shop")
	}
	if _, err := exec.LookPath(path); err != nil {
		return "", fmt.Errorf("the program under proof: %w; build it beside this one (go build -o bin/ ./cmd/shop ./loadtest/prove), or set --shop to its path", err)
	}
	return path, nil
}
