// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/cmd/shop/api"
	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/nemesis"
	"shop/loadtest/fault/pgfault"
	inventoryflow "shop/loadtest/scenario/inventory"
	transferflow "shop/loadtest/scenario/transfer"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/loadtest/site"
	"shop/locking/idempotency/pgtx"
	"shop/locking/servertest/daemon"
	"shop/transfer"
	"shop/wallet"
)

// widening is the mean of the pause at after-guard, between reading and acting on what was read: there
// a service races, or loses the lock that it relies on. Transfers also pause at after-begin. All strategies that must be
// safe have the same pauses under one fault; some faults make them longer (loadtest.Setup).
const widening = 2 * time.Millisecond

// widened is a failpoint that pauses at a step, for a multiple of widening on average. A control has none, unless
// the report says that it needs one.
func widened(s loadtest.Scenario, step string, times int) []string {
	if !s.Widened() {
		return nil
	}
	return []string{"--failpoint", step + "=exp:" + (time.Duration(max(1, times)) * widening).String()}
}

// lockTTLs are the TTLs of the locks under proof: longer than any request takes, and short enough that
// the lock of a killed replica expires during the load.
var lockTTLs = map[string]time.Duration{
	"inventory": time.Second,
	"transfer":  2 * time.Second, // the shortest TTL of etcd
	"wallet":    2 * time.Second, // how long MongoDB keeps an idle transaction, and with it the locks
}

// environment is what scenarios run on: the program under proof, and the servers.
type environment struct {
	program      string // the path of shop
	settings     *app
	stack        *stack.Stack                // nil without one
	private      map[string]*stack.Server    // by kind: servers for the scenarios that break them
	seed         int64                       // of the current scenario
	links        []*nemesis.Link             // of the current replicas to their stores, which a fault can cut
	proxies      []*pgfault.Proxy            // to PostgreSQL, one for each current replica; nil: none
	mongoProxies []*mongofault.Proxy         // to MongoDB, one for each current replica; nil: none
	etcds        map[string]*clientv3.Client // by endpoints
	redises      map[string]*redis.Client    // by URL
	closing      []func()
}

func (e *environment) close() {
	e.closeProxies()
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	for kind := range e.private { // the stack may outlive this process
		_ = e.retire(ctx, kind)
	}
	for _, done := range e.closing {
		done()
	}
}

// closeProxies closes the links and proxies of the previous scenario.
func (e *environment) closeProxies() {
	for _, l := range e.links {
		l.Close()
	}
	for _, w := range e.proxies {
		w.Close()
	}
	for _, w := range e.mongoProxies {
		w.Close()
	}
	e.links, e.proxies, e.mongoProxies = nil, nil, nil
}

// lesson is a flow with the strategies that its lesson offers, and how the flow uses the environment.
type lesson struct {
	*loadtest.Flow
	offers  []loadtest.Strategy
	replica func(*loadtest.Trial, *site.Program) error
	prepare func(context.Context, *pgxpool.Pool, *loadtest.Trial) ([]loadtest.Credentials, error)
	monitor func(context.Context, *loadtest.Trial) (loadtest.Monitor, error) // of its lock service; nil: it has none
	parts   func(context.Context, *loadtest.Trial) ([]nemesis.Part, error)   // the faults of its stores, for a nemesis
	figures func(context.Context, *loadtest.Trial, map[string]int64) ([]loadtest.Figure, error)

	caughtInCalms bool // its controls are caught between the faults of a nemesis, not by them
}

// lessons returns all lessons.
func (e *environment) lessons() []lesson {
	wallets := walletflow.New(walletflow.Environment{Mongo: e.mongoURL, Members: e.compare, WireReport: e.wireReport})
	return []lesson{
		{
			Flow: inventoryflow.New(), offers: loadtest.StrategiesOf(inventory.Strategies()), replica: e.inventoryReplica, prepare: stockShelves,
			monitor: e.redisMonitor, parts: e.inventoryParts, figures: e.redisFigures,
		},
		{
			Flow: transferflow.New(), offers: loadtest.StrategiesOf(transfer.Strategies()), replica: e.transferReplica, prepare: openAccounts,
			monitor: e.etcdMonitor, parts: e.transferParts, figures: e.etcdFigures,
		},
		{
			Flow: wallets, offers: loadtest.StrategiesOf(wallet.Strategies()), replica: e.walletReplica, prepare: openWallets,
			parts: e.walletParts, figures: walletflow.Figures,
			caughtInCalms: true, // a fault excuses repeated requests to the bonus service, which is what controls are caught by
		},
	}
}

// of returns the lesson of a trial.
func (e *environment) of(t *loadtest.Trial) lesson {
	all := e.lessons()
	return all[slices.IndexFunc(all, func(l lesson) bool { return l.Name == t.Scenario.Flow.Name })]
}

// matrix returns the matrices of all flows.
func (e *environment) matrix() (all []loadtest.Scenario) {
	for _, l := range e.lessons() {
		all = append(all, l.Matrix(l.offers)...)
	}
	return all
}

// check checks that the program and all servers that the scenarios need are available.
func (e *environment) check(scenarios []loadtest.Scenario) (err error) {
	c := e.settings
	if e.program, err = c.program(); err != nil {
		return err
	}
	switch {
	case c.PostgresURL == "" || c.RedisURL == "" || c.Etcd == "" || c.MongoURL == "":
		return errors.New("no servers: SHOP_POSTGRES_URL, SHOP_REDIS_URL, SHOP_ETCD_ENDPOINTS and SHOP_MONGO_URL must be set; " + getServers)
	case c.Stack == "" && slices.ContainsFunc(scenarios, func(s loadtest.Scenario) bool { return len(s.Setup().Private()) > 0 || s.Strategy == "lease-id-fence" }):
		return errNoStack
	}
	return e.attach(c.Stack)
}

// begin empties the folder of a scenario, and returns the URL of its PostgreSQL.
func (e *environment) begin(s loadtest.Scenario) (string, error) {
	folder := filepath.Join(e.settings.Out, s.Folder())
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return "", err
	}
	return e.postgresURL(s)
}

// replica returns how to start the replicas of a trial.
func (e *environment) replica(t *loadtest.Trial) (site.Program, error) {
	folder := filepath.Join(e.settings.Out, t.Scenario.Folder())
	e.seed = cmp.Or(t.Scenario.Seed, e.settings.Seed)
	p := site.Program{Path: e.program, Logs: folder, Spawn: e.spawn, Adopt: e.adopt}
	if err := e.of(t).replica(t, &p); err != nil {
		return p, err
	}
	own, flow, args := t.Scenario.Setup(), t.Scenario.Flow, p.Args
	p.Args = func(n int, listen, metrics string) []string {
		all := append(args(n, listen, metrics), own.Args...)
		if own.StopInBatch {
			all = append(all, "--failpoint", flow.Name+"/"+flow.Batch[n%len(flow.Batch)]+"=stop-batch")
		}
		return all
	}
	return p, nil
}

// serve returns the arguments that the replicas of all flows share.
func (e *environment) serve(listen, metrics, lockPrefix, redisURL string) []string {
	return []string{
		"serve", "--lab", "--listen", listen, "--metrics-listen", metrics, "--lock-prefix", lockPrefix,
		"--redis-url", redisURL, "--seed", fmt.Sprint(e.seed), "--shutdown-timeout", "5s", "--log-level", "warn",
	}
}

// spawn starts a replica that dies with this process. It gets a process group of its own, so that Ctrl-C
// interrupts the proof and not the replica.
func (e *environment) spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return daemon.Spawn(cmd)
}

// adopt registers a replica with the stack's supervisor, which ends it where the system does not kill
// orphans.
func (e *environment) adopt(pid int) error {
	if e.stack == nil {
		return nil
	}
	return e.stack.Adopt(pid)
}

// fault returns the fault of a trial.
func (e *environment) fault(t *loadtest.Trial) (fault.Fault, error) {
	inject := t.Scenario.Setup().Inject
	switch {
	case inject != nil:
		return inject(e, t)
	case t.Scenario.Fault == loadtest.NoFault:
		return fault.None{}, nil
	}
	return nil, fmt.Errorf("no such fault: %q", t.Scenario.Fault)
}

// PostgresProxies returns the proxies of the current replicas to PostgreSQL.
func (e *environment) PostgresProxies() []*pgfault.Proxy { return e.proxies }

// MongoProxies returns the proxies of the current replicas to MongoDB.
func (e *environment) MongoProxies() []*mongofault.Proxy { return e.mongoProxies }

// Links returns the links of the current replicas to their stores.
func (e *environment) Links() []*nemesis.Link { return e.links }

// Folder returns the folder of the report.
func (e *environment) Folder() string { return e.settings.Out }

// prepare creates the tables of a trial, and what its plan needs.
func (e *environment) prepare(ctx context.Context, t *loadtest.Trial) ([]loadtest.Credentials, error) {
	args := []string{"migrate", "--postgres-url", t.Postgres, "--mongo-url="}
	if own, has := t.State.(*walletflow.Stores); has {
		args = append(args, "--mongo-url", own.Mongo)
	}
	if out, err := exec.CommandContext(ctx, e.program, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("shop migrate: %w\n%s", err, out)
	}
	config, err := pgtx.PoolConfig(t.Postgres) // bounds every wait at the server
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	return e.of(t).prepare(ctx, pool, t)
}

// monitor observes the lock service of a strategy that takes locks.
func (e *environment) monitor(ctx context.Context, t *loadtest.Trial) (loadtest.Monitor, error) {
	l := e.of(t)
	if l.monitor == nil || !l.Locked(t.Scenario.Strategy) {
		return nil, nil
	}
	return l.monitor(ctx, t)
}

// figures reads what the store of a trial's flow has.
func (e *environment) figures(ctx context.Context, t *loadtest.Trial, idle map[string]int64) ([]loadtest.Figure, error) {
	ctx, cancel := context.WithTimeout(ctx, serverWait)
	defer cancel()
	return e.of(t).figures(ctx, t, idle)
}

// addClients creates the plan's clients.
func addClients(ctx context.Context, pool *pgxpool.Pool, t *loadtest.Trial) (list []loadtest.Credentials, err error) {
	for n := range t.Plan.Clients {
		id, key, err := api.AddClient(ctx, pool, fmt.Sprintf("client-%02d", n+1), false)
		if err != nil {
			return nil, err
		}
		list = append(list, loadtest.Credentials{ID: id, Key: key})
	}
	return list, nil
}
