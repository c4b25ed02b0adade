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

// widening is the mean of the pause at after-guard, between reading and acting on it: where
// naive races, and where a strategy that holds only a lock loses it. Transfers also pause at
// after-begin. Some faults change the pauses: late-write has none, pause makes those of
// wallets five times as long, lease-revoked those at after-begin. All strategies under
// one fault have the same pauses.
const widening = 2 * time.Millisecond

// lockTTLs of the replicas under proof: longer than any request takes, and short
// enough that a lock orphaned by a kill runs out while there is still load.
var lockTTLs = map[string]time.Duration{
	"inventory": time.Second,
	"transfer":  2 * time.Second, // etcd's least
	"wallet":    2 * time.Second, // how long MongoDB keeps a silent transaction, and with it its locks
}

// environment is what scenarios run on: the program under proof, and servers to break.
type environment struct {
	program      string // the path of shop
	settings     *app
	stack        *stack.Stack                // nil without one
	private      map[string]*stack.Server    // by kind: those that only the scenarios use that break them
	seed         int64                       // of the scenario under way
	links        []*nemesis.Link             // of its replicas to their stores, under a nemesis
	proxies      []*pgfault.Proxy            // to PostgreSQL, of the scenario under way, one for each replica; nil: none
	mongoProxies []*mongofault.Proxy         // to MongoDB, likewise
	etcds        map[string]*clientv3.Client // by endpoints
	redises      map[string]*redis.Client    // by URL
	closing      []func()
}

func (e *environment) close() {
	e.closeProxies()
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	for kind := range e.private { // the stack may live longer than we do
		_ = e.retire(ctx, kind)
	}
	for _, done := range e.closing {
		done()
	}
}

// closeProxies closes the proxies of the scenario before.
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

// lesson is a flow with the strategies that its lesson offers, and how it stands in the
// environment.
type lesson struct {
	*loadtest.Flow
	offers  []loadtest.Strategy
	replica func(*loadtest.Trial, *loadtest.Program) error
	fault   func(*loadtest.Trial) (fault.Fault, error) // but for those of the replicas' processes
	prepare func(context.Context, *pgxpool.Pool, *loadtest.Trial) ([]loadtest.Credentials, error)
	witness func(context.Context, *loadtest.Trial) (loadtest.Witness, error) // of its lock service; nil: it has none
	parts   func(context.Context, *loadtest.Trial) ([]nemesis.Part, error)   // of a nemesis: the faults of its stores
}

// lessons are all that there are.
func (e *environment) lessons() []lesson {
	wallets := walletflow.New(walletflow.Environment{Mongo: e.mongoURL, Members: e.compare, WireReport: e.wireReport})
	return []lesson{
		{inventoryflow.New(), loadtest.StrategiesOf(inventory.Strategies()), e.inventoryReplica, e.inventoryFault, stockShelves, e.redisWitness, e.inventoryParts},
		{transferflow.New(), loadtest.StrategiesOf(transfer.Strategies()), e.transferReplica, e.transferFault, openAccounts, e.etcdWitness, e.transferParts},
		{wallets, loadtest.StrategiesOf(wallet.Strategies()), e.walletReplica, e.walletFault, openWallets, nil, e.walletParts},
	}
}

// of is the lesson of a trial.
func (e *environment) of(t *loadtest.Trial) lesson {
	all := e.lessons()
	return all[slices.IndexFunc(all, func(l lesson) bool { return l.Name == t.Scenario.Flow.Name })]
}

// matrix is that of all flows.
func (e *environment) matrix() (all []loadtest.Scenario) {
	for _, l := range e.lessons() {
		all = append(all, l.Matrix(l.offers)...)
	}
	return all
}

// check finds out whether the program and all servers are there that the scenarios need.
func (e *environment) check(scenarios []loadtest.Scenario) (err error) {
	c := e.settings
	if e.program, err = c.program(); err != nil {
		return err
	}
	switch {
	case c.PostgresURL == "" || c.RedisURL == "" || c.Etcd == "" || c.MongoURL == "":
		return errors.New("no servers: SHOP_POSTGRES_URL, SHOP_REDIS_URL, SHOP_ETCD_ENDPOINTS and SHOP_MONGO_URL are needed; " + getServers)
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

var errNoStack = errors.New("no local stack: SHOP_STACK is not set, and a fault of a server needs one that may be killed; " + getServers)

// breaksServers says which scenarios need servers of their own.
func breaksServers(s loadtest.Scenario) bool {
	return s.Fault == loadtest.Nemesis || s.Fault == loadtest.Soak || s.Fault == inventoryflow.RedisDown || s.Fault == transferflow.PGRestart || threeMembers(s) || mongoKind(s) != ""
}

// serverWait bounds the start of a server.
const serverWait = 30 * time.Second

// server is a private one of a kind, started when it is first needed.
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

// address is the setting that says where a server of a kind is.
var address = map[string]string{
	"postgres": "SHOP_POSTGRES_URL", "redis": "SHOP_REDIS_URL", "etcd": "SHOP_ETCD_ENDPOINTS", "etcd3": "SHOP_ETCD_ENDPOINTS",
	"mongo": "SHOP_MONGO_URL", "mongo3": "SHOP_MONGO_URL",
}

// members are the private servers of a kind that share the setting of one, which is
// started when it is first needed.
func (e *environment) members(kind string) (members []fault.Member, err error) {
	first, err := e.server(kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	all, err := e.stack.Servers(ctx)
	for _, s := range all {
		if s.Env[address[s.Kind]] == first.Env[address[first.Kind]] {
			members = append(members, fault.Member{Addr: s.Addr, Dir: s.Dir, Server: s})
		}
	}
	return members, err
}

// retire ends the private servers of a kind; the next scenario gets another.
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

// postgresURL is the shared server, or for a scenario that restarts it one of our own.
func (e *environment) postgresURL(s loadtest.Scenario) (string, error) {
	if s.Fault != transferflow.PGRestart && s.Fault != loadtest.Soak && (s.Fault != loadtest.Nemesis || s.Flow.Name == "wallet") {
		return e.settings.PostgresURL, nil
	}
	return e.privateURL("postgres")
}

// privateURL is the setting of a private server.
func (e *environment) privateURL(kind string) (string, error) {
	server, err := e.server(kind)
	if err != nil {
		return "", err
	}
	return server.Env[address[kind]], nil
}

// through gives each replica its own way to a database, through a proxy.
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

// replica says how to start a replica.
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
	if t.Scenario.Fault == loadtest.CrashMatrix {
		p.Args = e.armed(t.Scenario, p.Args)
	}
	return p, err
}

// serve is what the replicas of all flows have in common.
func (e *environment) serve(listen, metrics, lockPrefix, redisURL string) []string {
	return []string{
		"serve", "--lab", "--listen", listen, "--metrics-listen", metrics, "--lock-prefix", lockPrefix,
		"--redis-url", redisURL, "--seed", fmt.Sprint(e.seed),
		"--shutdown-timeout", "5s", "--log-level", "warn",
	}
}

// spawn keeps a replica out of the terminal's process group, so that Ctrl-C ends the
// proof and not the replica, and ends the replica with this process.
func (e *environment) spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return stack.Spawn(cmd)
}

// adopt lets the stack's supervisor end a replica too: where the system does not
// kill orphans by itself, that is what does.
func (e *environment) adopt(pid int) error {
	if e.stack == nil {
		return nil
	}
	return e.stack.Adopt(pid)
}

// stepWait is how long a replica may live that is to die at a step: some come
// only with a request that needs it.
const stepWait = 5 * time.Second

// fault makes what happens to the replicas of a scenario, or to their servers.
func (e *environment) fault(t *loadtest.Trial) (fault.Fault, error) {
	l := e.of(t)
	switch {
	case t.Scenario.Fault == loadtest.NoFault:
		return fault.None{}, nil
	case t.Scenario.Fault == loadtest.Nemesis:
		return e.nemesis(context.Background(), t)
	case t.Scenario.Fault == loadtest.CrashMatrix:
		return e.crashMatrix(t), nil
	case t.Scenario.Fault == loadtest.Crash && len(l.Steps) > 0:
		return replicafault.CrashSteps{Replicas: t.Replicas, Flow: l.Name, Steps: l.Steps, Wait: stepWait}, nil
	case t.Scenario.Fault == loadtest.Crash:
		return replicafault.Crash{Victims: t.Replicas, Times: 6}, nil
	}
	return l.fault(t)
}

// prepare fills a scenario's stores with tables, and with what its flow needs.
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

// witness sees what replicas whose strategy takes locks do to the lock service.
func (e *environment) witness(ctx context.Context, t *loadtest.Trial) (loadtest.Witness, error) {
	l := e.of(t)
	if l.witness == nil || !l.Locked(t.Scenario.Strategy) {
		return nil, nil
	}
	return l.witness(ctx, t)
}

// over is when the last of some events was undone.
func over(events []fault.Event) (last time.Time) {
	for _, event := range events {
		if event.Until.After(last) {
			last = event.Until
		}
	}
	return last
}

// addClients makes the plan's clients. In a soak there are those of other flows and shifts too.
func addClients(ctx context.Context, pool *pgxpool.Pool, t *loadtest.Trial) (list []loadtest.Credentials, err error) {
	for n := range t.Plan.Clients {
		name := fmt.Sprintf("%s-%d-%02d", t.Scenario.Flow.Name, t.Scenario.Seed, n+1)
		id, key, err := api.AddClient(ctx, pool, name, false)
		if err != nil {
			return nil, err
		}
		list = append(list, loadtest.Credentials{ID: id, Key: key})
	}
	return list, nil
}
