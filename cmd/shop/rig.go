package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"shop/compose/local/stack"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/mongofault"
)

// widening is the mean of the pause between reading and acting on it. That is
// where the race of naive is, and where a lock is lost on those who hold only
// that; at after-acquire nothing has been read yet, and naive would have no
// pause inside its race. It is the same for every strategy, so that what differs
// is the strategy.
const widening = 2 * time.Millisecond

// lockTTLs of the replicas under proof: longer than any request takes, and short
// enough that a lock orphaned by a kill runs out while there is still load.
var lockTTLs = map[string]time.Duration{
	"inventory": time.Second,
	"transfer":  2 * time.Second, // etcd's least
	"wallet":    2 * time.Second, // how long MongoDB keeps a silent transaction, and with it its locks
}

// rig is what scenarios are run on: this program, and servers to break.
type rig struct {
	exe      string
	settings *proveCmd
	stack    *stack.Stack                // nil without one
	private  map[string]*stack.Server    // by kind: those that only the scenarios use that break them
	cluster  []*stack.Server             // the three members of the private etcd, when it is there
	wires    []*fault.Wire               // to PostgreSQL, of the scenario under way, one for each replica; nil: none
	tapped   []*mongofault.Wire          // to MongoDB, likewise
	etcds    map[string]*clientv3.Client // by endpoints
	closing  []func()
}

func (r *rig) close() {
	r.unwire()
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	for kind := range r.private { // the stack may live longer than we do
		_ = r.retire(ctx, kind)
	}
	for _, done := range r.closing {
		done()
	}
}

// unwire closes the wires of the scenario before.
func (r *rig) unwire() {
	for _, w := range r.wires {
		w.Close()
	}
	for _, w := range r.tapped {
		w.Close()
	}
	r.wires, r.tapped = nil, nil
}

func (r *rig) attach(dir string) (err error) {
	if dir == "" {
		return nil
	}
	if r.stack, err = stack.Attach(dir); err != nil {
		return fmt.Errorf("%w; %s", err, getServers)
	}
	return nil
}

var errNoStack = errors.New("no local stack: SHOP_STACK is not set, and a fault of a server needs one that may be killed; " + getServers)

// breaksServers says which scenarios need servers of their own.
func breaksServers(s loadtest.Scenario) bool {
	return s.Fault == loadtest.RedisDown || s.Fault == loadtest.PGRestart || threeMembers(s) || mongoKind(s) != ""
}

// serverWait bounds the start of a server.
const serverWait = 30 * time.Second

// server is a private one of a kind, started when it is first needed.
func (r *rig) server(kind string) (*stack.Server, error) {
	if s := r.private[kind]; s != nil {
		return s, nil
	}
	if r.stack == nil {
		return nil, errNoStack
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	s, err := r.stack.Private(ctx, kind)
	if err == nil {
		r.private[kind] = s
	}
	return s, err
}

// address is the setting that says where a server of a kind is.
var address = map[string]string{
	"postgres": "SHOP_POSTGRES_URL", "redis": "SHOP_REDIS_URL", "etcd3": "SHOP_ETCD_ENDPOINTS",
	"mongo": "SHOP_MONGO_URL", "mongo3": "SHOP_MONGO_URL",
}

// together are all servers that share the setting of one: the members of its cluster.
func (r *rig) together(first *stack.Server) (members []*stack.Server, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	all, err := r.stack.Servers(ctx)
	for _, s := range all {
		if s.Env[address[s.Kind]] == first.Env[address[first.Kind]] {
			members = append(members, s)
		}
	}
	return members, err
}

// retire ends the private servers of a kind; the next who needs one gets another.
func (r *rig) retire(ctx context.Context, kind string) error {
	first := r.private[kind]
	if first == nil {
		return nil
	}
	members, err := r.together(first)
	for _, m := range members {
		err = errors.Join(err, m.Kill(ctx))
	}
	delete(r.private, kind)
	return err
}

// postgresURL is the shared server, or for a scenario that restarts it one of our own.
func (r *rig) postgresURL(s loadtest.Scenario) (string, error) {
	if s.Fault != loadtest.PGRestart {
		return r.settings.PostgresURL, nil
	}
	server, err := r.server("postgres")
	if err != nil {
		return "", err
	}
	return server.Env["SHOP_POSTGRES_URL"], nil
}

// program starts a replica of this very program.
func (r *rig) program(s loadtest.Scenario, stores loadtest.Stores, lockPrefix string) (loadtest.Program, error) {
	logs := filepath.Join(r.settings.Out, "logs", strings.ReplaceAll(s.Name(), "/", "-"))
	if err := os.RemoveAll(logs); err != nil {
		return loadtest.Program{}, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return loadtest.Program{}, err
	}
	p := loadtest.Program{Path: r.exe, Logs: logs, Spawn: r.spawn, Adopt: r.adopt}
	switch s.Flow {
	case "transfer":
		return p, r.bankProgram(&p, s, stores.Postgres, lockPrefix)
	case "wallet":
		return p, r.walletProgram(&p, s, stores, lockPrefix)
	default:
		return p, r.shopProgram(&p, s, stores.Postgres, lockPrefix)
	}
}

// serve is what the replicas of all flows have in common.
func (r *rig) serve(listen, metrics, lockPrefix, redisURL string) []string {
	return []string{
		"serve", "--lab", "--listen", listen, "--metrics-listen", metrics, "--lock-prefix", lockPrefix,
		"--redis-url", redisURL, "--seed", fmt.Sprint(r.settings.Seed),
		"--shutdown-timeout", "5s", "--log-level", "warn",
	}
}

// spawn keeps a replica out of the terminal's process group, so that Ctrl-C
// comes to us alone, and ties its life to ours.
func (r *rig) spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return stack.Spawn(cmd)
}

// adopt lets the stack's supervisor end a replica too: where the system does not
// kill orphans by itself, that is what does.
func (r *rig) adopt(pid int) error {
	if r.stack == nil {
		return nil
	}
	return r.stack.Adopt(pid)
}

// fault makes what happens to the servers of a scenario.
func (r *rig) fault(s loadtest.Scenario, replicas *loadtest.Replicas, stores loadtest.Stores, lockPrefix string) (fault.Fault, error) {
	switch {
	case s.Fault == loadtest.NoFault:
		return fault.None{}, nil
	case s.Flow == "transfer":
		return r.bankFault(s, replicas, stores.Postgres, lockPrefix)
	case s.Flow == "wallet":
		return r.walletFault(s, replicas)
	default:
		return r.shopFault(s, replicas, lockPrefix)
	}
}

// prepare fills a scenario's stores with tables, and with what its flow needs.
func prepare(ctx context.Context, s loadtest.Scenario, stores loadtest.Stores, plan loadtest.Plan) ([]loadtest.Credentials, error) {
	if err := migrateAll(ctx, stores.Postgres); err != nil {
		return nil, err
	}
	pool, err := (&database{PostgresURL: stores.Postgres}).open(ctx, 4)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	switch s.Flow {
	case "transfer":
		return openAccounts(ctx, pool, plan)
	case "wallet":
		return fillWallets(ctx, pool, stores.Mongo, plan)
	default:
		return stockShelves(ctx, pool, plan)
	}
}
