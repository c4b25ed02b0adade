// SPDX-License-Identifier: MIT

package etcdfault

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"shop/locking/etcdlock"
	"shop/locking/idempotency/pgtx"
	"shop/transfer"
)

// asReplica makes this program a replica that moves money without a pause,
// until its standard input ends.
const asReplica = "as-replica"

// stepByStep, appended to a strategy, adds failpoints that do nothing, so that each step
// is sent on its own.
const stepByStep = " step by step"

// lockTTL is the shortest TTL that etcd supports.
const lockTTL = 2 * time.Second

// beReplica runs a replica. Its arguments: strategy, database, etcd, prefix, client, accounts.
func beReplica(args []string) int {
	strategy, database, etcd, prefix, owner := args[0], args[1], args[2], args[3], uuid.MustParse(args[4])
	svc, err := newService(strategy, database, etcd, prefix)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var accounts []uuid.UUID
	for _, id := range args[5:] {
		accounts = append(accounts, uuid.MustParse(id))
	}
	for range 8 {
		go func() {
			for {
				pair := rand.Perm(len(accounts))
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				_, _ = svc.Transfer(ctx, transfer.Request{Client: owner, Key: uuid.NewString(), Fingerprint: [32]byte{1}},
					transfer.Move{From: accounts[pair[0]], To: accounts[pair[1]], Amount: 1 + rand.Int64N(50), Currency: "EUR"})
				cancel()
			}
		}()
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return 0
}

func newService(strategy, database, etcd, prefix string) (*transfer.Service, error) {
	cfg, err := pgtx.PoolConfig(database)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	config := etcdlock.Config(strings.Split(etcd, ",")...)
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	locks, err := etcdlock.New(context.Background(), client, lockTTL, etcdlock.Options{Prefix: prefix})
	if err != nil {
		return nil, err
	}
	strategy, slow := strings.CutSuffix(strategy, stepByStep)
	settings := transfer.Config{Pool: pool, Strategy: strategy, Locks: locks, Epoch: "test-cluster"}
	if slow {
		settings.Failpoint = func(context.Context, transfer.Step, string) {}
	}
	return transfer.New(settings)
}

// processes are replicas that can be stopped.
type processes []*exec.Cmd

func (p processes) Pause(n int) error  { return p[n].Process.Signal(syscall.SIGSTOP) }
func (p processes) Resume(n int) error { return p[n].Process.Signal(syscall.SIGCONT) }

// start starts a replica that is killed when the test ends, however it ends.
func (p *processes) start(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{asReplica}, args...)...)
	life, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = life.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the replica printed %q, %v", line, err)
	}
	*p = append(*p, cmd)
}

// stop kills all.
func (p processes) stop() {
	for _, cmd := range p {
		_ = cmd.Process.Kill()
		_, _ = cmd.Process.Wait()
	}
}
