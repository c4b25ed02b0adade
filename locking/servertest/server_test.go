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
)

// victim is the environment variable of the process in which a test waits for a server
// that dies.
const victim = "LOCKTEST_VICTIM"

// talker prints a line and then runs on.
var talker = Program{
	Name: "sh",
	Args: func(*Server) []string { return []string{"-c", "echo last words; exec sleep 600"} },
	Ready: func(_ context.Context, s *Server) error {
		if s.tail() == "" {
			return os.ErrNotExist
		}
		return nil
	},
}

func TestServer_UnexpectedDeathEndsATestThatWaits(t *testing.T) {
	locktest.Slow(t, "a test of tests")
	if os.Getenv(victim) != "" {
		s := Start(t, talker)
		if err := syscall.Kill(s.now.pid, syscall.SIGKILL); err != nil {
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

func TestServer_IsKilledPausedAndStartedAgain(t *testing.T) {
	locktest.Slow(t, "a restart")
	t.Parallel()
	s := Start(t, talker)
	said := func(times int) { // all starts share one log, so Ready detects only the first
		locktest.Eventually(t, fmt.Sprintf("start %d", times), func() bool { return strings.Count(s.tail(), "last words") == times })
	}
	s.Pause()
	s.Resume()
	s.Pause()
	s.Restart() // works on a paused server too
	said(2)
	s.Kill()
	if s.Up() {
		t.Error("the server is up after Kill")
	}
	s.Kill() // a second Kill has no effect
	s.Start()
	said(3)
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
