// SPDX-License-Identifier: MIT

package servertest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"shop/locking/locktest"
	"shop/locking/servertest/daemon"
)

// victim is the environment variable of the process in which a test waits for a server
// that dies.
const victim = "LOCKTEST_VICTIM"

// talker prints a line and then runs on.
var talker = daemon.Kind{
	Name: "sh", File: "sh",
	Argv: func(*daemon.Instance) []string { return []string{"-c", "echo last words; exec sleep 600"} },
	Ready: func(_ context.Context, i *daemon.Instance) error {
		if i.LastLog() == "" {
			return os.ErrNotExist
		}
		return nil
	},
}

func TestServer_UnexpectedDeathEndsATestThatWaits(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	if os.Getenv(victim) != "" {
		s := Start(t, talker)
		if err := s.instance.Snapshot().First.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-t.Context().Done() // never happens: the process panics first
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victim+"=1")
	out, err := cmd.CombinedOutput()
	for _, says := range []string{"panic: " + t.Name(), "sh on 127.0.0.1:", "died unexpectedly", "last words"} {
		if err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%v, and no %q in\n%s", err, says, out)
		}
	}
}

// SIGQUIT, which ends a PostgreSQL with its test process, reaches a paused process only when it is resumed.
func TestServer_EndsWithAKilledTestProcessThoughItIsPaused(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	if os.Getenv(victim) != "" {
		k := talker
		k.Quick = syscall.SIGQUIT
		s := Start(t, k)
		s.Pause()
		fmt.Println(s.instance.Snapshot().First.PID)
		<-t.Context().Done() // never happens: the process is killed first
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), victim+"=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	server, err := daemon.Identify(pid)
	if err != nil || !server.Alive() {
		t.Fatalf("the server does not run: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	locktest.Eventually(t, "the server has ended", func() bool { return !server.Alive() })
}

func TestServer_IsKilledPausedAndStartedAgain(t *testing.T) {
	locktest.Slow(t, "a restart")
	t.Parallel()
	s := Start(t, talker)
	first := s.instance.Snapshot().First
	s.Pause()
	s.Resume()
	s.Pause()
	s.Restart() // works on a paused server too
	if second := s.instance.Snapshot().First; first.Alive() || !second.Alive() {
		t.Errorf("after a restart %v runs: %t, %v: %t", first, first.Alive(), second, second.Alive())
	}
	s.Kill()
	if s.Up() {
		t.Error("the server is up after Kill")
	}
	s.Kill() // a second Kill has no effect
	s.Start()
	if !s.Up() {
		t.Error("the server is down after Start")
	}
}

func TestFreeAddr_IsReservedUntilTheTestEnds(t *testing.T) {
	// reserve does what FreeAddr would do in another process.
	reserve := func(addr string) bool {
		reserved, err := net.ListenPacket("udp", addr)
		if err != nil {
			return false
		}
		_ = reserved.Close()
		return true
	}
	var addr string
	t.Run("the test of a server", func(t *testing.T) {
		addr = FreeAddr(t)
		if reserve(addr) {
			t.Error("another process can take the address")
		}
		if listener, err := net.Listen("tcp", addr); err != nil {
			t.Errorf("the server cannot listen: %v", err)
		} else {
			_ = listener.Close()
		}
	})
	if !reserve(addr) {
		t.Error("the address is still reserved after the test")
	}
}
