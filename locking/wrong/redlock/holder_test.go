// SPDX-License-Identifier: MIT

package redlock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/servertest"
)

const (
	key = "account"
	ttl = time.Second
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	servertest.Roles(map[string]func(args []string) error{
		"hold": func(args []string) error { return hold(context.Background(), args[0], args[1] == "true", args[2:]) },
	})
	goleak.VerifyTestMain(m)
}

// What a holder writes to its parent.
const (
	trusted = "trusted" // it has read, and its lease is valid: the next step is the write
	written = "written"
	refused = "refused"
)

// hold is A. It acquires, reads, checks its lease, and writes when the parent tells it to.
func hold(ctx context.Context, databaseURL string, fenced bool, servers []string) error {
	lock, end, err := newLock(servers, ttl)
	if err != nil {
		return err
	}
	defer end()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	u := &update{db: conn, fenced: fenced}
	for {
		lease, err := acquire(ctx, lock)
		if err == nil {
			err = u.read(ctx)
		}
		if err != nil {
			return err
		}
		if time.Now().Before(lease.Until) {
			break
		}
	}
	fmt.Println(trusted)
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	switch err = u.write(ctx, 10); {
	case err == nil:
		fmt.Println(written)
	case errors.Is(err, locking.ErrStale):
		fmt.Println(refused)
	}
	return err
}

// newLock makes a Lock of servers with these URLs.
func newLock(urls []string, ttl time.Duration) (l Lock, end func(), err error) {
	for _, url := range urls {
		o, err := redis.ParseURL(url)
		if err != nil {
			return l, nil, err
		}
		o.MaxRetries, o.DialerRetries, o.ContextTimeoutEnabled = -1, 1, true
		l.Servers = append(l.Servers, redis.NewClient(o))
	}
	l.Key, l.TTL = key, ttl
	return l, func() {
		for _, server := range l.Servers {
			_ = server.Close()
		}
	}, nil
}

// acquire waits for the key.
func acquire(ctx context.Context, l Lock) (Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if lease, taken := l.TryAcquire(ctx); taken {
			return lease, nil
		}
		time.Sleep(time.Duration(rand.Int64N(int64(100 * time.Millisecond)))) // of two that ask at once each may get a few servers
	}
	return Lease{}, ctx.Err()
}

// process is a holder in a process of its own.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Writer
	stdout *bufio.Reader
}

func startHolder(t *testing.T, servers []string, databaseURL string, fenced bool) *process {
	t.Helper()
	cmd := servertest.Process(t, "hold", append([]string{databaseURL, strconv.FormatBool(fenced)}, servers...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &process{cmd: cmd, stdin: stdin, stdout: bufio.NewReader(stdout)}
}

// says waits for the holder's next line.
func (p *process) says(t *testing.T, want string) {
	t.Helper()
	if line, err := p.stdout.ReadString('\n'); strings.TrimSpace(line) != want {
		t.Fatalf("the holder says %q, %v, want %q", line, err, want)
	}
}

// stop sends SIGSTOP, and waits until the process is stopped.
func (p *process) stop(t *testing.T) {
	t.Helper()
	var status syscall.WaitStatus
	err := p.cmd.Process.Signal(syscall.SIGSTOP)
	if err == nil {
		_, err = syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
	}
	if err != nil || !status.Stopped() {
		t.Fatalf("stop the holder: %v, status %v", err, status)
	}
}

// tellToWrite puts the word to write into the holder's input, which it reads when it runs.
func (p *process) tellToWrite(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, "write\n"); err != nil {
		t.Fatal(err)
	}
}

func (p *process) resume(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
