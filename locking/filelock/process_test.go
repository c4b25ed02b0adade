// SPDX-License-Identifier: MIT

package filelock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shop/locking"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

func TestMain(m *testing.M) {
	servertest.Roles(map[string]func(args []string) error{
		"count": func(args []string) error { return count(args[0]) },
		"hold":  func(args []string) error { return holdKey(args[0], args[1]) },
		"many":  func(args []string) error { return holdMany(args[0]) },
	})
	goleak.VerifyTestMain(m)
}

const workers, increments = 3, 50

// often suits a lock that is held for microseconds.
var often = locking.Options{Backoff: locking.Backoff{Base: time.Millisecond, Max: 2 * time.Millisecond}}

// count increments a number in a file by a read and a write, which is correct only under
// a lock.
func count(dir string) error {
	s, err := New(filepath.Join(dir, "locks"))
	if err != nil {
		return err
	}
	number := filepath.Join(dir, "number")
	for range increments {
		err := locking.Do(context.Background(), s, often, []string{"number"}, func(context.Context, locking.Lease) error {
			text, _ := os.ReadFile(number)
			n, _ := strconv.Atoi(string(text))
			return os.WriteFile(number, []byte(strconv.Itoa(n+1)), 0o600)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func TestDo_ExcludesProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			if out, err := servertest.Process(t, "count", dir).CombinedOutput(); err != nil {
				t.Errorf("worker %d: %v\n%s", i, err, out)
			}
		})
	}
	all.Wait()
	got, err := os.ReadFile(filepath.Join(dir, "number"))
	if err != nil || string(got) != strconv.Itoa(workers*increments) {
		t.Errorf("after %d increments by each of %d processes the number is %q, %v", increments, workers, got, err)
	}
}

// holdKey takes a key, starts a child, prints its fence and the child's
// process id, and holds the key until it is killed.
func holdKey(dir, key string) error {
	s, err := New(dir)
	if err != nil {
		return err
	}
	lease, err := s.TryAcquire(context.Background(), key)
	if err != nil {
		return err
	}
	child := exec.Command("cat") // ends when its input ends, which the test holds open
	child.Stdin = os.Stdin
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println(lease.Fence, child.Process.Pid)
	return child.Wait()
}

// holder is another process that holds a key. Its child outlives it.
type holder struct {
	t     testing.TB
	cmd   *exec.Cmd
	fence locking.Fence
	child int
}

func startHolder(t testing.TB, dir, key string) *holder {
	t.Helper()
	h := &holder{t: t, cmd: servertest.Process(t, "hold", dir, key)}
	input, inputWriter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inputWriter.Close() }) // ends the child
	defer input.Close()
	h.cmd.Stdin = input
	var says strings.Builder
	h.cmd.Stderr = &says
	output, err := h.cmd.StdoutPipe()
	if err == nil {
		err = h.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	said, err := bufio.NewReader(output).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscan(said, &h.fence, &h.child)
	}
	if err != nil {
		h.kill()
		t.Fatalf("the holder says %q and %q: %v", said, says.String(), err)
	}
	return h
}

// kill ends the process with SIGKILL. The child stays.
func (h *holder) kill() {
	if h.cmd.ProcessState == nil {
		_ = h.cmd.Process.Kill()
		_ = h.cmd.Wait()
	}
}

func (h *holder) signal(s syscall.Signal) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
}

// A holder that is stopped keeps its key: the lease does not expire. A holder that is
// killed frees it at once, although a program that it has started is still running.
func TestHolder_KeepsTheKeyUntilItIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStore(t, dir)
	first := locktest.Taken(t, s, "batch")
	locktest.Released(t, s, first)

	h := startHolder(t, dir, "batch")
	if h.fence <= first.Fence {
		t.Errorf("fence %d of the other process, after %d", h.fence, first.Fence)
	}
	locktest.WantHeld(t, s, "batch")
	h.signal(syscall.SIGSTOP)
	locktest.WantHeld(t, s, "batch")
	h.kill()
	next := locktest.Taken(t, s, "batch")
	if next.Fence != h.fence+1 {
		t.Errorf("fence %d, after %d of the holder that was killed", next.Fence, h.fence)
	}
	if err := syscall.Kill(h.child, 0); err != nil {
		t.Errorf("the holder's child has ended: %v", err)
	}
	locktest.Released(t, s, next)
}

// A process that waits while the holder is killed gets the key.
func TestAcquire_WaitsForAHolderThatIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newStore(t, dir)
	h := startHolder(t, dir, "batch")
	waits := often
	waits.Observer = func(e locking.Event) {
		if e.Kind == locking.Busy {
			h.kill()
		}
	}
	lease, err := locking.Acquire(t.Context(), s, waits, "batch")
	if err != nil || lease.Fence <= h.fence {
		t.Fatalf("got %+v and %v, want a fence above %d", lease, err, h.fence)
	}
	locktest.Released(t, s, lease)
}

// holdMany takes keys until the process may open no more files.
func holdMany(dir string) error {
	s, err := New(dir)
	if err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 32, Max: 32}); err != nil {
		return err
	}
	var held []locking.Lease
	for {
		lease, err := s.TryAcquire(context.Background(), strconv.Itoa(len(held)))
		if errors.Is(err, syscall.EMFILE) && !errors.Is(err, locking.ErrBusy) {
			break
		}
		if err != nil {
			return fmt.Errorf("got %w, want too many open files", err)
		}
		held = append(held, lease)
	}
	for _, lease := range held {
		if err := s.Release(context.Background(), lease); err != nil {
			return err
		}
	}
	_, err = s.TryAcquire(context.Background(), "another")
	return err
}

// Without a free descriptor a request fails, but not with ErrBusy. The leases stay.
func TestAcquire_TooManyOpenFiles(t *testing.T) {
	t.Parallel()
	if out, err := servertest.Process(t, "many", t.TempDir()).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
