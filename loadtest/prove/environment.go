package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"shop/cmd/shop/api"
	inventoryflow "shop/loadtest/scenario/inventory"
	transferflow "shop/loadtest/scenario/transfer"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/transfer"
	"shop/wallet"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
	"shop/loadtest/fault/pgfault"
	"shop/locking/idempotency/pgtx"
)

// widening is the mean of the pause between reading and acting on it. That is where the
// race of naive is, and where a strategy that holds only a lock loses it; at
// after-acquire nothing has been read yet, and naive would have no pause inside its race. It is the same for every strategy, so that what differs
// is the strategy.
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
	cluster      []*stack.Server             // the three members of the private etcd, when it is there
	proxies      []*pgfault.Proxy            // to PostgreSQL, of the scenario under way, one for each replica; nil: none
	mongoProxies []*mongofault.Proxy         // to MongoDB, likewise
	etcds        map[string]*clientv3.Client // by endpoints
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
	for _, w := range e.proxies {
		w.Close()
	}
	for _, w := range e.mongoProxies {
		w.Close()
	}
	e.proxies, e.mongoProxies = nil, nil
}

// matrix is that of all flows, with the strategies that the lessons offer.
func (e *environment) matrix() []loadtest.Scenario {
	var purchases, transfers, wallets []loadtest.Strategy
	for _, s := range inventory.Strategies() {
		purchases = append(purchases, loadtest.Strategy{Name: s.Name, Safe: s.Safe, Stores: s.Stores})
	}
	for _, s := range transfer.Strategies() {
		transfers = append(transfers, loadtest.Strategy{Name: s.Name, Safe: s.Safe, Stores: s.Stores})
	}
	for _, s := range wallet.Strategies() {
		wallets = append(wallets, loadtest.Strategy{Name: s.Name, Safe: s.Safe, Stores: s.Stores})
	}
	flows := e.flows()
	return slices.Concat(flows[0].Matrix(purchases), flows[1].Matrix(transfers), flows[2].Matrix(wallets))
}

// flows are all that there are.
func (e *environment) flows() []*loadtest.Flow {
	wallets := walletflow.Environment{Mongo: e.mongoURL, Members: e.compare, WireReport: e.wireReport}
	return []*loadtest.Flow{inventoryflow.New(), transferflow.New(), walletflow.New(wallets)}
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
	return s.Fault == inventoryflow.RedisDown || s.Fault == transferflow.PGRestart || threeMembers(s) || mongoKind(s) != ""
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
	"postgres": "SHOP_POSTGRES_URL", "redis": "SHOP_REDIS_URL", "etcd3": "SHOP_ETCD_ENDPOINTS",
	"mongo": "SHOP_MONGO_URL", "mongo3": "SHOP_MONGO_URL",
}

// together are all servers that share the setting of one: the members of its cluster.
func (e *environment) together(first *stack.Server) (members []*stack.Server, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	all, err := e.stack.Servers(ctx)
	for _, s := range all {
		if s.Env[address[s.Kind]] == first.Env[address[first.Kind]] {
			members = append(members, s)
		}
	}
	return members, err
}

// retire ends the private servers of a kind; the next scenario gets another.
func (e *environment) retire(ctx context.Context, kind string) error {
	first := e.private[kind]
	if first == nil {
		return nil
	}
	members, err := e.together(first)
	for _, m := range members {
		err = errors.Join(err, m.Kill(ctx))
	}
	delete(e.private, kind)
	return err
}

// postgresURL is the shared server, or for a scenario that restarts it one of our own.
func (e *environment) postgresURL(s loadtest.Scenario) (string, error) {
	if s.Fault != transferflow.PGRestart {
		return e.settings.PostgresURL, nil
	}
	server, err := e.server("postgres")
	if err != nil {
		return "", err
	}
	return server.Env["SHOP_POSTGRES_URL"], nil
}

// flow is what differs between the flows in their environment.
type flow struct {
	replica func(*loadtest.Trial, *loadtest.Program) error
	fault   func(*loadtest.Trial) (fault.Fault, error)
	prepare func(context.Context, *pgxpool.Pool, *loadtest.Trial) ([]loadtest.Credentials, error)
}

func (e *environment) of(t *loadtest.Trial) flow {
	return map[string]flow{
		"inventory": {e.inventoryReplica, e.inventoryFault, stockShelves},
		"transfer":  {e.transferReplica, e.transferFault, openAccounts},
		"wallet":    {e.walletReplica, e.walletFault, openWallets},
	}[t.Scenario.Flow.Name]
}

// replica says how to start a replica.
func (e *environment) replica(t *loadtest.Trial) (loadtest.Program, error) {
	logs := filepath.Join(e.settings.Out, "logs", strings.ReplaceAll(t.Scenario.Name(), "/", "-"))
	if err := os.RemoveAll(logs); err != nil {
		return loadtest.Program{}, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return loadtest.Program{}, err
	}
	p := loadtest.Program{Path: e.program, Logs: logs, Spawn: e.spawn, Adopt: e.adopt}
	err := e.of(t).replica(t, &p)
	return p, err
}

// serve is what the replicas of all flows have in common.
func (e *environment) serve(listen, metrics, lockPrefix, redisURL string) []string {
	return []string{
		"serve", "--lab", "--listen", listen, "--metrics-listen", metrics, "--lock-prefix", lockPrefix,
		"--redis-url", redisURL, "--seed", fmt.Sprint(e.settings.Seed),
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

// fault makes what happens to the servers of a scenario.
func (e *environment) fault(t *loadtest.Trial) (fault.Fault, error) {
	if t.Scenario.Fault == loadtest.NoFault {
		return fault.None{}, nil
	}
	return e.of(t).fault(t)
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

// addClients makes the plan's clients.
func addClients(ctx context.Context, pool *pgxpool.Pool, plan loadtest.Plan) (list []loadtest.Credentials, err error) {
	for n := range plan.Clients {
		id, key, err := api.AddClient(ctx, pool, fmt.Sprintf("client-%02d", n+1), false)
		if err != nil {
			return nil, err
		}
		list = append(list, loadtest.Credentials{ID: id, Key: key})
	}
	return list, nil
}
