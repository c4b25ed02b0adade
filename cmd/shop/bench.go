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

// bench is what scenarios are run on: this program, and servers to break.
type bench struct {
	exe      string
	settings *proveCmd
	stack    *stack.Stack // nil without one
	private  *stack.Server
	clients  []*redis.Client // to be closed
}

func (b *bench) close() {
	for _, c := range b.clients {
		_ = c.Close()
	}
}

func (b *bench) attach(dir string) (err error) {
	if dir == "" {
		return nil
	}
	if b.stack, err = stack.Attach(dir); err != nil {
		return fmt.Errorf("%w; %s", err, getServers)
	}
	return nil
}

// redisURL is the shared server, or for a scenario that kills it one of our own.
func (b *bench) redisURL(s loadtest.Scenario) (string, error) {
	if s.Fault != loadtest.RedisDown {
		return b.settings.RedisURL, nil
	}
	if b.private == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var err error
		if b.private, err = b.stack.Private(ctx, "redis"); err != nil {
			return "", err
		}
	}
	return "redis://" + b.private.Addr + "/0", nil
}

// program starts a replica of this very program.
func (b *bench) program(s loadtest.Scenario, databaseURL, lockPrefix string) (loadtest.Program, error) {
	logs := filepath.Join(b.settings.Out, "logs", strings.ReplaceAll(s.Name(), "/", "-"))
	if err := os.RemoveAll(logs); err != nil {
		return loadtest.Program{}, err
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return loadtest.Program{}, err
	}
	redisURL, err := b.redisURL(s)
	if err != nil {
		return loadtest.Program{}, err
	}
	return loadtest.Program{
		Path: b.exe, Logs: logs, Spawn: b.spawn, Adopt: b.adopt,
		Args: func(_ int, listen, metrics string) []string {
			return []string{
				"serve", "--lab", "--strategy", s.Strategy,
				"--listen", listen, "--metrics-listen", metrics,
				"--postgres-url", databaseURL, "--redis-url", redisURL,
				"--lock-prefix", lockPrefix, "--lock-ttl", lockTTL.String(),
				"--failpoint", "after-guard=exp:" + widening.String(), "--seed", fmt.Sprint(b.settings.Seed),
				"--shutdown-timeout", "5s", "--log-level", "warn",
			}
		},
	}, nil
}

// spawn keeps a replica out of the terminal's process group, so that Ctrl-C
// comes to us alone, and ties its life to ours.
func (b *bench) spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return stack.Spawn(cmd)
}

// adopt lets the stack's supervisor end a replica too: where the system does not
// kill orphans by itself, that is what does.
func (b *bench) adopt(pid int) error {
	if b.stack == nil {
		return nil
	}
	return b.stack.Adopt(pid)
}

// fault makes what happens to the servers of a scenario.
func (b *bench) fault(s loadtest.Scenario, replicas *loadtest.Replicas, lockPrefix string) (fault.Fault, error) {
	switch s.Fault {
	case loadtest.NoFault:
		return fault.None{}, nil
	case loadtest.Crash:
		return fault.Crash{Victims: replicas, Times: 6}, nil
	case loadtest.LockLost:
		options, err := redis.ParseURL(b.settings.RedisURL)
		if err != nil {
			return nil, err
		}
		client := redis.NewClient(options)
		b.clients = append(b.clients, client)
		return fault.LockLost{Client: client, Prefix: lockPrefix, Every: 2 * time.Millisecond}, nil
	case loadtest.RedisDown:
		return fault.Down{Name: "redis", Server: b.private, Part: 0.5}, nil
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
