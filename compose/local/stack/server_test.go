// SPDX-License-Identifier: MIT

package stack_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"shop/compose/local/stack"
	"shop/locking/locktest"
	"shop/locking/servertest/daemon"
)

// Goal: when Open, Kill, Stop, Pause, Resume or Start returns, its effect is complete,
// on each kind of server. Method: a server of each kind, and a value that is written
// before and read after with that server's own client.

func TestServer_KeepsItsDataThroughEveryEnd(t *testing.T) {
	t.Parallel()
	s := open(t, stack.Kinds()...)
	for _, kind := range stack.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := server(t, s, kind)
			r := registers[kind](t, srv)
			must(t, "the first query after Open", r.write(t.Context(), "first"))

			must(t, "Kill", srv.Kill(t.Context()))
			if srv.State != daemon.Down {
				t.Fatalf("killed server is %s", srv.State)
			}
			wantSilence(t, r)
			addr := srv.Addr
			must(t, "Start after Kill", srv.Start(t.Context()))
			wantKept(t, r, "first")

			must(t, "write", r.write(t.Context(), "second"))
			must(t, "Stop", srv.Stop(t.Context()))
			wantSilence(t, r)
			must(t, "Start after Stop", srv.Start(t.Context()))
			wantKept(t, r, "second")
			if srv.Addr != addr {
				t.Fatalf("address was %s, is %s", addr, srv.Addr)
			}
			if err := srv.Start(t.Context()); err == nil {
				t.Fatal("Start of a running server succeeded")
			}
		})
	}
}

// With a file Redis comes back with its data, without one it comes back empty.
func TestServer_AKeptOneIsStartedAgainUnlessItIsStoppedOnRequest(t *testing.T) {
	t.Parallel()
	s := open(t, "redis", "redis-memory")
	for kind, kept := range map[string]bool{"redis": true, "redis-memory": false} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv, client := server(t, s, kind), redis.NewClient(&redis.Options{Addr: server(t, s, kind).Addr, MaxRetries: -1})
			defer client.Close()
			must(t, "Keep", srv.Keep(t.Context()))
			for range 2 { // it dies again
				must(t, "write", client.Set(t.Context(), "k", "v", 0).Err())
				first := server(t, s, kind).PID
				must(t, "SIGKILL", syscall.Kill(first, syscall.SIGKILL))
				var found int64
				eventually(t, "it answers again, in another process", func() bool {
					now := server(t, s, kind)
					n, err := client.Exists(t.Context(), "k").Result()
					found = n
					return err == nil && now.PID != first && now.Addr == srv.Addr
				})
				if (found == 1) != kept {
					t.Errorf("%d keys after it came back", found)
				}
			}
			must(t, "Kill", srv.Kill(t.Context()))
			time.Sleep(200 * time.Millisecond) // as long as several starts take
			if now := server(t, s, kind); now.State != daemon.Down || now.Death != "" {
				t.Errorf("killed on request, it is %s %s", now.State, now.Death)
			}
			must(t, "Start", srv.Start(t.Context()))
		})
	}
}

func TestServer_PausedOneIsSilentThenGoesOn(t *testing.T) {
	t.Parallel()
	s := open(t, stack.Kinds()...)
	for _, kind := range stack.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			srv := server(t, s, kind)
			r := registers[kind](t, srv)
			must(t, "write", r.write(t.Context(), "kept"))
			must(t, "Pause", srv.Pause(t.Context()))
			wantSilence(t, r)
			must(t, "Resume", srv.Resume(t.Context()))
			wantKept(t, r, "kept")

			must(t, "Pause", srv.Pause(t.Context()))
			must(t, "Kill while paused", srv.Kill(t.Context()))
			must(t, "Start", srv.Start(t.Context()))
			wantKept(t, r, "kept")

			must(t, "Pause", srv.Pause(t.Context()))
			must(t, "Stop while paused", srv.Stop(t.Context()))
			must(t, "Start", srv.Start(t.Context()))
			wantKept(t, r, "kept")
		})
	}
}

// An open PostgreSQL session is served by a separate process in a separate process
// session: pausing only the first process would not stop it.
func TestServer_PauseStopsOpenSessionsToo(t *testing.T) {
	t.Parallel()
	srv := server(t, open(t, "postgres"), "postgres")
	conn, err := pgx.Connect(t.Context(), srv.Env["SHOP_POSTGRES_URL"])
	must(t, "connect", err)
	defer conn.Close(context.Background())

	must(t, "Pause", srv.Pause(t.Context()))
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT 1")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("a session of a paused server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	must(t, "Resume", srv.Resume(t.Context()))
	must(t, "the same query, after the pause", <-answer)
}

// wantSilence checks that no answer comes; a refused connection counts as none.
func wantSilence(t *testing.T, r register) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if got, err := r.read(ctx); err == nil {
		t.Fatalf("a server that is down or paused replied %q", got)
	}
}

func TestPrivate_IsAnotherServer(t *testing.T) {
	t.Parallel()
	s := open(t, "redis")
	shared := registers["redis"](t, server(t, s, "redis"))
	one, err := s.Private(t.Context(), "redis")
	must(t, "Private", err)
	private := registers["redis"](t, one)
	must(t, "write", shared.write(t.Context(), "shared"))
	must(t, "write", private.write(t.Context(), "private"))
	must(t, "Kill", one.Kill(t.Context()))
	wantKept(t, shared, "shared")
	must(t, "Start", one.Start(t.Context()))
	wantKept(t, private, "private")
}

func TestCluster_ServesWithoutOneMember(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"etcd", "mongo"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := open(t, kind+"3")
			first := server(t, s, kind+"3-1")
			must(t, "Kill", first.Kill(t.Context()))
			r := registers[kind](t, server(t, s, kind+"3-2"))
			// The killed member may have been the leader: an election takes a second or two.
			eventually(t, "a write with two of three", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), tryLimit)
				defer cancel()
				return r.write(ctx, "kept") == nil
			})
			must(t, "Start", first.Start(t.Context()))
			wantKept(t, r, "kept")
		})
	}
}

func TestAttach_ReachesARunningStackOnly(t *testing.T) {
	t.Parallel()
	s := open(t, "redis")
	again, err := stack.Attach(s.Dir())
	must(t, "Attach", err)
	if got, want := server(t, again, "redis").Addr, server(t, s, "redis").Addr; got != want {
		t.Fatalf("attached to %s, want %s", got, want)
	}
	if _, err := again.Server("postgres"); err == nil {
		t.Fatal("a server that was not requested was found")
	}
	if _, err := stack.Attach(t.TempDir()); err == nil {
		t.Fatal("attached to an empty folder")
	}
	if _, err := stack.Attach(""); err == nil {
		t.Fatal("attached without a folder")
	}
}

func TestClose_LeavesNoFolder(t *testing.T) {
	t.Parallel()
	s, err := stack.Open(t.Context(), stack.Options{Servers: []string{"redis", "postgres"}})
	must(t, "Open", err)
	must(t, "Kill, so that shared memory is left behind", server(t, s, "postgres").Kill(t.Context()))
	must(t, "Pause", server(t, s, "redis").Pause(t.Context()))
	must(t, "Close", s.Close())
	if _, err := os.Stat(s.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the folder is still there: %v", err)
	}
}

func TestPrivate_ACancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	s := open(t)
	cause := errors.New("cancelled by the test")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, cause)
	defer cancel()
	if _, err := s.Private(ctx, "postgres"); !errors.Is(err, cause) {
		t.Fatalf("Private returned %v, want the cause of the cancellation", err)
	}
	eventually(t, "the half-started server is gone", func() bool {
		left, err := s.Servers(t.Context())
		must(t, "Servers", err)
		files, err := filepath.Glob(filepath.Join(s.Dir(), "postgres*"))
		must(t, "Glob", err)
		return len(left) == 0 && len(files) == 0
	})
}

// Sweep removes a stack whose lock is free, because it takes it for dead. So the lock must
// outlive garbage collections of the supervisor, which close an unreferenced *os.File.
func TestLock_IsHeldAsLongAsTheSupervisorLives(t *testing.T) {
	t.Setenv("GOGC", "1") // the supervisor collects garbage continuously
	s := open(t, "redis")
	redis := server(t, s, "redis")
	for range 12 { // each lists all processes, which makes garbage
		must(t, "pause", redis.Pause(t.Context()))
		must(t, "resume", redis.Resume(t.Context()))
	}
	f, err := os.Open(filepath.Join(s.Dir(), "lock"))
	must(t, "open the lock", err)
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
		t.Fatalf("the lock of a running stack is free: %v", err)
	}
}

// A killed process may stay attached to PostgreSQL's shared memory for a moment, for
// example while another process reads its /proc: Start would be refused.
func TestServer_KillWaitsUntilSharedMemoryIsFree(t *testing.T) {
	t.Parallel()
	srv := server(t, open(t, "postgres"), "postgres")
	pidFile, err := os.ReadFile(filepath.Join(srv.Dir, "data", "postmaster.pid"))
	must(t, "read postmaster.pid", err)
	var key, id int
	_, err = fmt.Sscan(strings.Split(string(pidFile), "\n")[6], &key, &id)
	must(t, "find the segment", err)
	memory, err := unix.SysvShmAttach(id, 0, unix.SHM_RDONLY)
	must(t, "attach", err)

	pid, killed, early := srv.PID, make(chan struct{}), false
	go func() {
		defer close(killed)
		err = srv.Kill(t.Context())
	}()
	locktest.Eventually(t, "the server is dead", func() bool { return syscall.Kill(pid, 0) != nil })
	select {
	case <-killed:
		early = true
	case <-time.After(100 * time.Millisecond):
	}
	must(t, "detach", unix.SysvShmDetach(memory))
	<-killed
	if must(t, "Kill", err); early {
		t.Error("Kill returned while a process was attached")
	}
	must(t, "Start", srv.Start(t.Context()))
}
