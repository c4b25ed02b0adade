// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"shop/loadtest"
	"shop/loadtest/fault"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/loadtest/soak"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// soakFlags are the flags of a long run under a low load.
type soakFlags struct {
	Soak     time.Duration `placeholder:"DURATION" help:"Instead of the matrix, run the default strategies of all flows at once on one set of replicas, for at least this time, at a low --rate (default: 30). Memory, goroutines, connections, locks and records of the processes and stores are read from outside, and each must be bounded. The load comes in shifts. Each shift is audited and checked for linearizability like a scenario; then its orders, transfers and wallets are removed, so that hours need no more memory than one shift. What grows by nature is therefore not watched over the whole time."`
	Shift    time.Duration `name:"soak-shift" placeholder:"DURATION" help:"Length of a shift's load. Default: a twentieth of the soak, at least 15s and at most 5m."`
	Every    time.Duration `name:"soak-every" default:"5s" help:"Time between two readings."`
	Restarts bool          `name:"soak-restarts" default:"true" negatable:"" help:"In every other shift, kill a store and restart it, each time another one."`
	Batch    time.Duration `name:"batch-every" default:"200ms" help:"How often shop batch ends holds and purges keys beside the replicas. After each shift its keys are dated back by more than the 24 hours for which they are kept. With a value longer than the soak the batch runs only once: the soak must then find that the keys grow."`
}

func (c *app) validateSoak() error {
	s := c.Soak
	switch {
	case s.Soak == 0:
		return nil
	case c.Nemesis.Nemesis || c.Strategy != "" || c.Fault != "" || c.Quick || c.Duration != 0 || c.Target != "":
		return errors.New("--soak cannot be combined with --strategy, --fault, --quick, --duration, --nemesis or --target: it runs the default strategies for its own time")
	case s.Shift < 0 || s.Every <= 0 || s.Batch <= 0:
		return errors.New("--soak-shift, --soak-every and --batch-every must be above 0")
	case s.Soak < 2*soak.FewestShifts*s.shift() || s.shift() < shiftLeast:
		return fmt.Errorf("--soak %v in shifts of %v: a shift must last at least %v, and the soak must have at least %d shifts to compare", s.Soak, s.shift(), shiftLeast, 2*soak.FewestShifts)
	}
	return nil
}

// The lengths of a shift without --soak-shift.
const (
	shiftLeast = 15 * time.Second
	shiftMost  = 5 * time.Minute
	shiftPart  = 20
)

// shift returns the length of a shift.
func (s soakFlags) shift() time.Duration {
	if s.Shift > 0 {
		return s.Shift
	}
	return min(shiftMost, max(shiftLeast, s.Soak/shiftPart))
}

// defaults are the strategies that shop serve runs without a setting.
var defaults = map[string]string{"inventory": "redis+row", "transfer": "etcd-fenced", "wallet": "lockid"}

// soaks returns the scenarios of a soak: one for each flow.
func soaks(lessons []lesson) (all []loadtest.Scenario) {
	for _, l := range lessons {
		all = append(all, l.Safe(defaults[l.Name], loadtest.Soak))
	}
	return all
}

// soak runs the proof as a soak.
func (c *app) soak(ctx context.Context, env *environment, proof loadtest.Proof) (loadtest.Report, error) {
	proof.Done = c.keepShift()
	return proof.Soak(ctx, loadtest.Soaking{
		For: c.Soak.Soak, Every: c.Soak.Every, Fault: env.restarts(proof.Scenarios),
		Program: env.soakProgram, Sources: env.sources,
	})
}

// keptShifts bounds how many results that are not as expected keep their requests in memory, for the page.
const keptShifts = 3

// keepShift removes the files of results that are as expected, and drops their requests.
func (c *app) keepShift() func(*loadtest.Result) error {
	kept := 0
	return func(r *loadtest.Result) error {
		if r.AsExpected {
			r.Slim()
			return os.RemoveAll(filepath.Join(c.Out, r.Folder()))
		}
		if kept++; kept > keptShifts {
			r.Slim()
		}
		return nil
	}
}

// restarts returns the fault of each shift: in every other shift a store is killed and restarted, the
// stores in turn.
func (e *environment) restarts(scenarios []loadtest.Scenario) func(shift int) fault.Fault {
	stores := []string{"postgres"}
	for _, s := range scenarios {
		stores = append(stores, map[string]string{"inventory": "redis", "transfer": "etcd", "wallet": "mongo"}[s.Flow.Name])
	}
	return func(shift int) fault.Fault {
		if !e.settings.Soak.Restarts || shift%2 == 1 {
			return fault.None{}
		}
		store := stores[(shift/2-1)%len(stores)]
		return fault.Restart{Server: e.private[store], Name: store, Evidence: "restarts", Times: 1}
	}
}

// soakProgram returns a program whose replicas serve all flows, with a batch as sidecar.
func (e *environment) soakProgram(trials []*loadtest.Trial) (loadtest.Program, error) {
	first := trials[0]
	folder := filepath.Join(e.settings.Out, "soak")
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return loadtest.Program{}, err
	}
	redisURL, err := e.redisURL(first.Scenario)
	if err != nil {
		return loadtest.Program{}, err
	}
	endpoints, err := e.endpoints(first.Scenario)
	if err != nil {
		return loadtest.Program{}, err
	}
	e.seed = e.settings.Seed
	stores := []string{
		"--postgres-url", first.Postgres, "--etcd-endpoints", endpoints[0], "--mongo-url", "",
		"--transfer-strategy", defaults["transfer"], "--transfer-lock-ttl", lockTTLs["transfer"].String(),
	}
	serve := []string{
		"--strategy", defaults["inventory"], "--lock-ttl", lockTTLs["inventory"].String(), "--wallet-strategy", defaults["wallet"],
		"--failpoint", "inventory/after-guard=exp:" + widening.String(), "--failpoint", "wallet/after-guard=exp:" + widening.String(),
	}
	if own := walletsOf(trials); own != nil {
		stores[5] = own.Mongo
		serve = append(serve, "--bonus-url", own.Bonus)
	}
	p := loadtest.Program{Path: e.program, Logs: folder, Spawn: e.spawn, Adopt: e.adopt}
	p.Args = func(_ int, listen, metrics string) []string {
		return slices.Concat(e.serve(listen, metrics, first.Prefix, redisURL), stores, serve, widen(first.Scenario))
	}
	p.Sidecar = func() []string {
		return append([]string{"batch", "--lab", "--every", e.settings.Soak.Batch.String(), "--log-level", "warn", "--lock-prefix", first.Prefix}, stores...)
	}
	return p, nil
}

// walletsOf returns the stores of the wallet flow; nil if no trial is of that flow.
func walletsOf(trials []*loadtest.Trial) *walletflow.Stores {
	for _, t := range trials {
		if own, has := t.State.(*walletflow.Stores); has {
			return own
		}
	}
	return nil
}

// sources returns the processes and the stores to read.
func (e *environment) sources(_ context.Context, trials []*loadtest.Trial) (sources []soak.Source, err error) {
	first := trials[0]
	for n := range first.Replicas.Len() {
		pid, metrics := first.Replicas.Process(n)
		sources = append(sources, soak.Process(fmt.Sprintf("replica %d", n+1), pid, metrics))
	}
	if pid := first.Replicas.Sidecar(); pid != nil {
		sources = append(sources, soak.Process("batch", pid, ""))
	}
	sources = append(sources, soak.Generator("prove", os.Getpid))
	redisClient, err := e.redis(first.Scenario)
	if err != nil {
		return nil, err
	}
	etcdClient, err := e.etcd(first.Scenario)
	if err != nil {
		return nil, err
	}
	sources = append(sources, soak.Postgres(first.Postgres), soak.Redis(redisClient, first.Prefix), soak.Etcd(etcdClient, first.Prefix))
	own := walletsOf(trials)
	if own == nil {
		return sources, nil
	}
	client, err := mongo.Connect(options.Client().ApplyURI(own.Mongo).SetAppName("soak").SetMaxPoolSize(2))
	if err != nil {
		return nil, err
	}
	e.closing = append(e.closing, func() { _ = client.Disconnect(context.Background()) })
	return append(sources, soak.Mongo(client.Database(first.Prefix), first.Prefix)), nil
}
