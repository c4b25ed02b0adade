// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"shop/cmd/shop/api"
	inventoryflow "shop/loadtest/scenario/inventory"
	transferflow "shop/loadtest/scenario/transfer"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/transfer"
	"shop/wallet"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/nemesis"
	"shop/loadtest/fault/pgfault"
	"shop/loadtest/fault/replicafault"
	"shop/locking/idempotency/pgtx"
)

// widening is the mean of the pause at after-guard, between reading and acting on what was read: there
// naive races, and there a strategy that relies on its lock alone loses the lock. Transfers also pause at
// after-begin. All strategies have the same pauses under one fault. Some faults change them:
//
//	late-write                   transfers have none
//	lease-revoked                those of transfers, five times as long, and so are those at after-begin
//	a nemesis                    those of transfers at after-begin are five times as long
//	pause                        those of wallets too
//	redis-failover               thirty times as long, so that a replica is soon found between the two
//	hang-up                      of purchases, twenty times: requests wait for a batch, however fast the machine is
//	hang-up, combiner-paused     of wallets, twenty-five times, for the same reason
const widening = 2 * time.Millisecond

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
	replica func(*loadtest.Trial, *loadtest.Program) error
	fault   func(*loadtest.Trial) (fault.Fault, error) // the faults that fault does not handle
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
		{inventoryflow.New(), loadtest.StrategiesOf(inventory.Strategies()), e.inventoryReplica, e.inventoryFault, stockShelves, e.redisMonitor, e.inventoryParts, e.redisFigures, false},
		{transferflow.New(), loadtest.StrategiesOf(transfer.Strategies()), e.transferReplica, e.transferFault, openAccounts, e.etcdMonitor, e.transferParts, e.etcdFigures, false},
		// A fault excuses repeated requests to the bonus service, which is what controls of wallets are caught by.
		{wallets, loadtest.StrategiesOf(wallet.Strategies()), e.walletReplica, e.walletFault, openWallets, nil, e.walletParts, walletflow.Figures, true},
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
	case c.Stack == "" && slices.ContainsFunc(scenarios, breaksServers):
		return errNoStack
	}
	return e.attach(c.Stack)
}

func (e *environment) attach(dir string) (err error) {
	if dir == "" {
		return nil
	}
	if e.stack, err = stack.Attach(dir); err != nil {
		return fmt.Errorf("%w; %s", err, getServers)
	}
	return nil
}

var errNoStack = errors.New("no local stack: SHOP_STACK is not set, and faults of servers need servers that may be killed; " + getServers)

// breaksServers reports whether a scenario needs servers of its own.
func breaksServers(s loadtest.Scenario) bool {
	return s.Fault == loadtest.Nemesis || s.Fault == inventoryflow.RedisDown || s.Fault == inventoryflow.RedisFailover || postgresKind(s) != "" || threeMembers(s) || mongoKind(s) != ""
}

// serverWait bounds the start of a server.
const serverWait = 30 * time.Second

// server returns the private server of a kind. It starts the server on the first call.
func (e *environment) server(kind string) (*stack.Server, error) {
	if s := e.private[kind]; s != nil {
		return s, nil
	}
	if e.stack == nil {
		return nil, errNoStack
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	s, err := e.stack.Private(ctx, kind)
	if err == nil {
		e.private[kind] = s
	}
	return s, err
}

// members returns the members of the private cluster of a kind, which share their settings. It starts the cluster on
// the first call.
func (e *environment) members(kind string) (members []fault.Member, err error) {
	first, err := e.server(kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	all, err := e.stack.Servers(ctx)
	for _, s := range all {
		if maps.Equal(s.Env, first.Env) {
			members = append(members, fault.Member{Addr: s.Addr, Dir: s.Dir, Server: s})
		}
	}
	return members, err
}

// retire kills the private servers of a kind; the next scenario gets new ones.
func (e *environment) retire(ctx context.Context, kind string) error {
	if e.private[kind] == nil {
		return nil
	}
	members, err := e.members(kind)
	for _, m := range members {
		err = errors.Join(err, m.Server.Kill(ctx))
	}
	delete(e.private, kind)
	return err
}

// privateURL returns the address of a private server.
func (e *environment) privateURL(kind string) (string, error) {
	server, err := e.server(kind)
	if err != nil {
		return "", err
	}
	variable, err := stack.Variable(kind)
	return server.Env[variable], err
}

// through opens a proxy to a database for each replica.
func through[P interface{ URL() string }](replicas int, databaseURL string, open func(string) (P, error)) (proxies []P, urls []string, err error) {
	for range replicas {
		p, err := open(databaseURL)
		if err != nil {
			return proxies, nil, err
		}
		proxies, urls = append(proxies, p), append(urls, p.URL())
	}
	return proxies, urls, nil
}

// replica returns how to start the replicas of a trial, and empties the folder of its files.
func (e *environment) replica(t *loadtest.Trial) (loadtest.Program, error) {
	folder := filepath.Join(e.settings.Out, t.Scenario.Folder())
	if err := os.RemoveAll(folder); err != nil {
		return loadtest.Program{}, err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return loadtest.Program{}, err
	}
	e.seed = cmp.Or(t.Scenario.Seed, e.settings.Seed)
	p := loadtest.Program{Path: e.program, Logs: folder, Spawn: e.spawn, Adopt: e.adopt}
	err := e.of(t).replica(t, &p)
	switch t.Scenario.Fault {
	case loadtest.CrashMatrix:
		p.Args = e.armed(t.Scenario, p.Args)
	case loadtest.CombinerPaused:
		p.Args = stopping(e.of(t), p.Args)
	case loadtest.StandbyGone, loadtest.PrimaryLost, loadtest.PrimaryLostAsync: // a COMMIT that waits keeps its connection
		p.Args = adding(p.Args, "--pg-max-conns", "32")
	}
	return p, err
}

// stopping adds a failpoint to the arguments of each replica, at a step of a batch: another one for each.
func stopping(l lesson, args func(n int, listen, metrics string) []string) func(n int, listen, metrics string) []string {
	return func(n int, listen, metrics string) []string {
		return append(args(n, listen, metrics), "--failpoint", l.Name+"/"+l.Batch[n%len(l.Batch)]+"=stop-batch")
	}
}

// serve returns the arguments that the replicas of all flows share.
func (e *environment) serve(listen, metrics, lockPrefix, redisURL string) []string {
	return []string{
		"serve", "--lab", "--listen", listen, "--metrics-listen", metrics, "--lock-prefix", lockPrefix,
		"--redis-url", redisURL, "--seed", fmt.Sprint(e.seed),
		"--shutdown-timeout", "5s", "--log-level", "warn",
	}
}

// spawn starts a replica that dies with this process. It gets a process group of its own, so that Ctrl-C
// interrupts the proof and not the replica.
func (e *environment) spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return stack.Spawn(cmd)
}

// adopt registers a replica with the stack's supervisor, which ends it where the system does not kill
// orphans.
func (e *environment) adopt(pid int) error {
	if e.stack == nil {
		return nil
	}
	return e.stack.Adopt(pid)
}

// stepWait bounds how long a replica runs that must die at a step: only some requests reach the step.
const stepWait = 5 * time.Second

// fault returns the fault of a trial.
func (e *environment) fault(t *loadtest.Trial) (fault.Fault, error) {
	l := e.of(t)
	switch {
	case t.Scenario.Fault == loadtest.NoFault:
		return fault.None{}, nil
	case t.Scenario.Fault == loadtest.Nemesis:
		return e.nemesis(context.Background(), t)
	case t.Scenario.Fault == loadtest.CrashMatrix:
		return e.crashMatrix(t), nil
	case postgresKind(t.Scenario) == postgresPair:
		return e.standby(t)
	case t.Scenario.Fault == loadtest.HangUp:
		return loadtest.HangUps{Trial: t}, nil
	case t.Scenario.Fault == loadtest.CombinerKilled:
		return replicafault.CrashSteps{Replicas: t.Replicas, Flow: l.Name, Steps: l.Batch, Action: "kill-batch", Wait: stepWait, Calm: 2 * lockTTLs[l.Name]}, nil
	case t.Scenario.Fault == loadtest.Crash && len(l.Steps) > 0:
		return replicafault.CrashSteps{Replicas: t.Replicas, Flow: l.Name, Steps: l.Steps, Action: "kill", Wait: stepWait}, nil
	case t.Scenario.Fault == loadtest.Crash:
		return replicafault.Crash{Victims: t.Replicas, Times: 6}, nil
	}
	return l.fault(t)
}

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

// over returns when the last event ended.
func over(events []fault.Event) (last time.Time) {
	for _, event := range events {
		if event.Until.After(last) {
			last = event.Until
		}
	}
	return last
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
