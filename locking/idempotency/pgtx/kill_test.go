// SPDX-License-Identifier: MIT

package pgtx_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"shop/locking/idempotency"
	"shop/locking/idempotency/pgtx"
	"shop/locking/locktest"
)

// A process is killed at each step, and another process receives the same key.
func TestRun_ProcessKilledAtAnyStepIsOneEffect(t *testing.T) {
	locktest.Slow(t, "processes")
	t.Parallel()
	d := newDatabase(t, nil)
	for n, step := range steps {
		req := newRequest()
		victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
		victim.Env = append(os.Environ(), "PGTX_KILL_AT="+string(step), "PGTX_URL="+d.URL, "PGTX_REQUEST="+req.Client.String()+" "+req.Key)
		out, err := victim.CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Fatalf("%s: the process was not killed: %v\n%s", step, err, out)
		}
		before := int64(n)
		if step == pgtx.AfterCommit {
			before++
		}
		d.want(before)
		reply, err := d.Do(t.Context(), req, raise(req, "a"))
		if err != nil || reply.Replayed != (step == pgtx.AfterCommit) {
			t.Errorf("%s: %+v, %v", step, reply, err)
		}
		d.want(int64(n) + 1)
	}
}

// child is the process that is killed.
func child(at pgtx.Step) {
	ctx := context.Background()
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	cfg, err := pgtx.PoolConfig(os.Getenv("PGTX_URL"))
	if err != nil {
		fail(err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		fail(err)
	}
	db, err := pgtx.New(pgtx.Config{Pool: pool, Failpoint: func(_ context.Context, step pgtx.Step, _ string) {
		if step == at {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}})
	if err != nil {
		fail(err)
	}
	client, key, _ := strings.Cut(os.Getenv("PGTX_REQUEST"), " ")
	req := idempotency.Request{Client: uuid.MustParse(client), Key: key, Fingerprint: [32]byte{1}}
	_, err = db.Do(ctx, req, raise(req, "a"))
	fail(fmt.Errorf("not killed at %s: %w", at, err))
}
