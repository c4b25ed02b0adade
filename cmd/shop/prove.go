package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/transfer"
	"shop/wallet"
)

// proveCmd loads replicas of this very program and audits what came of it.
type proveCmd struct {
	PostgresURL string `name:"postgres-url" env:"SHOP_POSTGRES_URL" placeholder:"URL" help:"A PostgreSQL server on which databases may be made and dropped."`
	RedisURL    string `name:"redis-url" env:"SHOP_REDIS_URL" placeholder:"URL" help:"Redis, for the locks."`
	Etcd        string `name:"etcd-endpoints" env:"SHOP_ETCD_ENDPOINTS" placeholder:"HOST:PORT" help:"etcd, for the locks of accounts."`
	MongoURL    string `name:"mongo-url" env:"SHOP_MONGO_URL" placeholder:"URL" help:"A MongoDB replica set on which databases may be made and dropped."`
	Stack       string `env:"SHOP_STACK" placeholder:"DIR" help:"State folder of the local stack: faults of servers need it."`

	Flow     string        `help:"Only this flow: inventory, transfer or wallet."`
	Strategy string        `help:"Only this strategy."`
	Fault    string        `help:"Only this fault, as the first line of a scenario names it: none, crash, lock-lost, late-write, step-down …"`
	Quick    bool          `help:"Two or three minutes that show the point, with every safe strategy once, instead of the whole matrix."`
	Replicas int           `default:"3" help:"Replicas of the shop under load."`
	Rate     int           `default:"200" help:"Buyers per second."`
	Duration time.Duration `help:"Of the load of one scenario. Default: 8s; with --quick 6s, and 2s without a fault."`
	Seed     int64         `default:"1" help:"Of the load and of the pauses; the same seed is the same load."`
	Out      string        `default:"report" type:"path" help:"Folder for prove.json, index.html and the replicas' logs."`
	Keep     bool          `help:"Keep the databases of the scenarios."`

	calm   time.Duration // Duration where there is no fault; 0: the same
	Target targetFlags   `embed:"" group:"Somebody else's service"`
}

// The defaults of --duration.
const (
	durationQuick = 6 * time.Second
	durationCalm  = 2 * time.Second // with --quick, without a fault: controls are caught within one
	durationWhole = 8 * time.Second
)

// Validate finds what cannot work.
func (c *proveCmd) Validate() error {
	switch {
	case c.Rate < 1 || c.Replicas < 1 || c.Duration < 0:
		return errors.New("--rate and --replicas must be at least 1, --duration above 0")
	case c.Replicas < 2 && len(c.Target.Target) == 0:
		return errors.New("--replicas must be at least 2: a single replica cannot race with another")
	}
	if len(c.Target.Target) > 0 && (c.Strategy != "" || c.Flow != "" || c.Fault != "" || c.Quick) {
		return errors.New("--strategy, --flow, --fault and --quick choose from our own scenarios: a service given with --target has none of them")
	}
	return c.Target.validate()
}

// Run exits with 0 if everything was as expected, with 1 if it was not, with 2
// if it could not be found out.
func (c *proveCmd) Run(ctx context.Context, std stdio) error {
	if c.Duration == 0 {
		c.Duration = durationWhole
		if c.Quick {
			c.Duration, c.calm = durationQuick, durationCalm
		}
	}
	report, err := c.prove(ctx, newTeller(std.err))
	if report.Planned > 0 { // else nothing was tried
		err = errors.Join(err, c.tell(std, report))
	}
	switch {
	case err != nil:
		return &usageError{fmt.Errorf("prove: could not run: %w", err)}
	case !report.AsExpected:
		return errors.New("prove: not as expected; see the lines marked above, and the report")
	}
	return nil
}

// tell prints the table, and writes the report: of a run that was called off
// too, in place of an earlier one, which would be taken for its result.
func (c *proveCmd) tell(std stdio, report loadtest.Report) error {
	fmt.Fprintln(std.out)
	if err := errors.Join(report.Table(std.out), report.Write(c.Out)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(std.out, "\n%s\n%s\n", filepath.Join(c.Out, "index.html"), filepath.Join(c.Out, "prove.json"))
	return err
}

func (c *proveCmd) prove(ctx context.Context, tell *teller) (loadtest.Report, error) {
	if len(c.Target.Target) > 0 {
		return c.proveTarget(ctx, tell)
	}
	scenarios, err := c.scenarios()
	if err != nil {
		return loadtest.Report{}, err
	}
	rig, err := c.rig(scenarios)
	if err != nil {
		return loadtest.Report{}, err
	}
	defer rig.close()
	if err := os.MkdirAll(c.Out, 0o755); err != nil { // before the work, not after it
		return loadtest.Report{}, err
	}
	proof := loadtest.Proof{
		Scenarios: scenarios,
		Load:      loadtest.Load{Rate: c.Rate, Duration: c.Duration, Seed: c.Seed, Replicas: c.Replicas},
		Calm:      c.calm,
		LockTTL:   lockTTLs,
		Server:    rig.postgresURL,
		Mongo:     rig.mongoURL,
		Keep:      c.Keep,
		Prepare:   prepare,
		Program:   rig.program,
		Fault:     rig.fault,
		Leftovers: rig.leftovers,
		Members:   rig.compare,
		Overheard: rig.overheard,
		Say:       tell.say,
		Tick:      tell.tick,
	}
	return proof.Run(ctx)
}

// matrix is that of all flows, with the strategies that they offer.
func matrix() []loadtest.Scenario {
	var shop, bank, till []loadtest.Strategy
	for _, s := range inventory.Strategies() {
		shop = append(shop, loadtest.Strategy{Name: s.Name, Safe: s.Safe, Stores: s.Stores})
	}
	for _, s := range transfer.Strategies() {
		bank = append(bank, loadtest.Strategy{Name: s.Name, Safe: s.Safe, Stores: s.Stores})
	}
	for _, s := range wallet.Strategies() {
		till = append(till, loadtest.Strategy{Name: s.Name, Safe: s.Safe, Stores: s.Stores})
	}
	return slices.Concat(loadtest.Inventory.Matrix(shop), loadtest.Transfer.Matrix(bank), loadtest.Wallet.Matrix(till))
}

// scenarios chooses from the matrix.
func (c *proveCmd) scenarios() ([]loadtest.Scenario, error) {
	matrix := matrix()
	chosen := loadtest.Only(matrix, c.Flow, c.Strategy, c.Fault)
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no scenario has flow %q, strategy %q and fault %q (\"\" is any); there are:\n  %s", c.Flow, c.Strategy, c.Fault, names(matrix))
	}
	if !c.Quick {
		return chosen, nil
	}
	quick := loadtest.Quick(chosen)
	if len(quick) == 0 {
		return nil, fmt.Errorf("that is not part of --quick: leave --quick out to run it; part of --quick are:\n  %s", names(loadtest.Quick(matrix)))
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

// how to get servers, for whoever has none.
const getServers = "start real servers for the time of the proof with\n  go run ./compose/local exec -- go run ./cmd/shop prove --quick\n(make demo does that)"

// rig checks that all servers are there that the scenarios need.
func (c *proveCmd) rig(scenarios []loadtest.Scenario) (*rig, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	switch {
	case c.PostgresURL == "" || c.RedisURL == "" || c.Etcd == "" || c.MongoURL == "":
		return nil, errors.New("no servers: SHOP_POSTGRES_URL, SHOP_REDIS_URL, SHOP_ETCD_ENDPOINTS and SHOP_MONGO_URL are needed; " + getServers)
	case c.Stack == "" && slices.ContainsFunc(scenarios, breaksServers):
		return nil, errNoStack
	}
	r := &rig{exe: program, settings: c, private: map[string]*stack.Server{}, etcds: map[string]*clientv3.Client{}}
	return r, r.attach(c.Stack)
}
