package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"shop/cmd/shop/api"
	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
)

// lockTTL of the replicas under proof: longer than any purchase takes, and short
// enough that a lock orphaned by a kill runs out while there is still load.
const lockTTL = time.Second

// widening is the mean of the pause between reading the stock and acting on it.
// That is where the race of naive is, and where a lock is lost on redis-only; at
// after-acquire nothing has been read yet, and naive would have no pause inside
// its race. It is the same for every strategy, so that what differs is the strategy.
const widening = 2 * time.Millisecond

// rig is what scenarios are run on: this program, and servers to break.
type rig struct {
	exe      string
	settings *proveCmd
	stack    *stack.Stack // nil without one
	private  *stack.Server
	clients  []*redis.Client // to be closed
}

func (r *rig) close() {
	for _, c := range r.clients {
		_ = c.Close()
	}
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

// redisURL is the shared server, or for a scenario that kills it one of our own.
func (r *rig) redisURL(s loadtest.Scenario) (string, error) {
	if s.Fault != loadtest.RedisDown {
		return r.settings.RedisURL, nil
	}
	if r.private == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var err error
		if r.private, err = r.stack.Private(ctx, "redis"); err != nil {
			return "", err
		}
	}
	return "redis://" + r.private.Addr + "/0", nil
}

// program starts a replica of this very program.
func (r *rig) program(s loadtest.Scenario, databaseURL, lockPrefix string) (loadtest.Program, error) {
	logs := filepath.Join(r.settings.Out, "logs", strings.ReplaceAll(s.Name(), "/", "-"))
	if err := os.RemoveAll(logs); err != nil {
		return loadtest.Program{}, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return loadtest.Program{}, err
	}
	redisURL, err := r.redisURL(s)
	if err != nil {
		return loadtest.Program{}, err
	}
	return loadtest.Program{
		Path: r.exe, Logs: logs, Spawn: r.spawn, Adopt: r.adopt,
		Args: func(_ int, listen, metrics string) []string {
			return []string{
				"serve", "--lab", "--strategy", s.Strategy, "--transfer-strategy", "row",
				"--listen", listen, "--metrics-listen", metrics,
				"--postgres-url", databaseURL, "--redis-url", redisURL, "--etcd-endpoints", r.settings.Etcd,
				"--lock-prefix", lockPrefix, "--lock-ttl", lockTTL.String(),
				"--failpoint", "after-guard=exp:" + widening.String(), "--seed", fmt.Sprint(r.settings.Seed),
				"--shutdown-timeout", "5s", "--log-level", "warn",
			}
		},
	}, nil
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
func (r *rig) fault(s loadtest.Scenario, replicas *loadtest.Replicas, lockPrefix string) (fault.Fault, error) {
	switch s.Fault {
	case loadtest.NoFault:
		return fault.None{}, nil
	case loadtest.Crash:
		return fault.Crash{Victims: replicas, Times: 6}, nil
	case loadtest.LockLost:
		options, err := redis.ParseURL(r.settings.RedisURL)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(options)
		r.clients = append(r.clients, client)
		return fault.LockLost{Client: client, Prefix: lockPrefix, Every: 2 * time.Millisecond}, nil
	case loadtest.RedisDown:
		return fault.Down{Name: "redis", Server: r.private, Part: 0.5}, nil
	}
	return nil, fmt.Errorf("no such fault: %q", s.Fault)
}

// prepare fills a scenario's database: tables, stock, and one buyer.
func prepare(ctx context.Context, _ loadtest.Scenario, databaseURL string, plan loadtest.Plan) ([]loadtest.Credentials, error) {
	if err := migrateAll(ctx, databaseURL); err != nil {
		return nil, err
	}
	pool, err := (&database{PostgresURL: databaseURL}).open(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	service, err := inventory.New(inventory.Config{Pool: pool, Strategy: "row"})
	if err != nil {
		return nil, err
	}
	for _, s := range plan.Stock {
		product := inventory.Product{SKU: s.SKU, Name: s.SKU, Price: 1000, Currency: "EUR", Stock: s.Quantity}
		if _, err := service.AddProduct(ctx, product); err != nil {
			return nil, err
		}
	}
	id, key, err := api.AddClient(ctx, pool, "buyer", false)
	return []loadtest.Credentials{{ID: id, Key: key}}, err
}
