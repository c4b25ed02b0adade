package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"shop/compose/local/stack"
)

// Goal: whatever ends, and however it ends, nothing is left. Method: a command
// that refuses every signal it can, with a child; one of the processes involved
// is killed; then the pids of all of them are looked at from outside.

func TestEndings_SIGKILLOfAnyOneProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	victims := map[string]func(*testing.T, *session) int{
		"exec":       func(_ *testing.T, s *session) int { return s.cmd.Process.Pid },
		"supervisor": func(t *testing.T, s *session) int { return role(t, "supervisor", s.dir) },
	}
	for name, victim := range victims {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := begin(t, everything, forever)
			kill(t, victim(t, s), syscall.SIGKILL)
			s.wantNothingLeft(t)
			s.code(t)
		})
	}
}

// Whoever kills the undertaker gets another one; the work goes on.
func TestEndings_AKilledUndertakerIsReplaced(t *testing.T) {
	t.Parallel()
	s := begin(t, "redis", "sleep 300 & read line; exit 5")
	first := role(t, "undertaker", s.dir)
	kill(t, first, syscall.SIGKILL)
	eventually(t, "another undertaker", func() bool {
		for pid, p := range ps(t) {
			if pid != first && p.alive() && p.args == "shop-stack-undertaker "+s.dir {
				return true
			}
		}
		return false
	})
	_ = s.in.Close()
	if code := s.code(t); code != 5 {
		t.Errorf("exit code %d, want the command's 5", code)
	}
	s.wantNothingLeft(t)
}

// A test that waits for an answer of a dead server may wait for ever.
func TestEndings_ADeadServerEndsTheCommandAndIsNamed(t *testing.T) {
	t.Parallel()
	for _, name := range stack.Kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var said strings.Builder
			cmd := local(t, "exec", "--servers", name, "--", "sh", "-c", "echo $$ $SHOP_STACK; "+forever)
			cmd.Stderr = &said
			s := await(t, cmd)
			victim := attach(t, s, name)
			kill(t, victim.PID, syscall.SIGKILL)
			if code := s.code(t); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			wantContains(t, said.String(), fmt.Sprintf("%s (pid %d) died: signal: killed; last log lines:\n", name, victim.PID))
			s.wantNothingLeft(t)
		})
	}
}

func TestEndings_AServerThatIsStoppedOnRequestEndsNothing(t *testing.T) {
	t.Parallel()
	s := begin(t, "redis", "sleep 300 & read line; exit 5")
	redis := attach(t, s, "redis")
	for _, step := range []func(context.Context) error{redis.Kill, redis.Start, redis.Pause, redis.Kill, redis.Start, redis.Stop} {
		if err := step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.in.Close()
	if code := s.code(t); code != 5 {
		t.Errorf("exit code %d, want the command's 5", code)
	}
}

// attach reaches a server of a session's stack.
func attach(t *testing.T, s *session, name string) *stack.Server {
	t.Helper()
	attached, err := stack.Attach(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	server, err := attached.Server(name)
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// A server that stands still cannot hear that it is to end.
func TestEndings_PausedServersEndToo(t *testing.T) {
	t.Parallel()
	s := begin(t, everything, forever)
	for _, name := range stack.Kinds() {
		if err := attach(t, s, name).Pause(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	s.wantNothingLeft(t)
}

// A replica makes itself a group of its own, so it is not in the command's.
func TestEndings_AdoptedProcessesEndToo(t *testing.T) {
	t.Parallel()
	s := begin(t, "redis", forever)
	attached, err := stack.Attach(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	replica := exec.Command("sleep", "300")
	replica.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := replica.Start(); err != nil {
		t.Fatal(err)
	}
	if err := attached.Adopt(replica.Process.Pid); err != nil {
		t.Fatal(err)
	}
	kill(t, replica.Process.Pid, syscall.SIGSTOP)
	kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
	if err := replica.Wait(); err == nil {
		t.Error("the replica ended by itself")
	}
	s.wantNothingLeft(t)
}

// `go run` and make may be killed: exec's own parent, and the one of --while.
func TestEndings_ExecEndsWithWhoAskedForIt(t *testing.T) {
	t.Parallel()
	t.Run("its parent", func(t *testing.T) {
		t.Parallel()
		cmd := local(t, "-c", `"$0" exec --servers redis -- sh -c 'echo $$ $SHOP_STACK; `+forever2+`' & wait`, os.Args[0])
		cmd.Path, cmd.Args[0] = shell(t), "sh"
		s := await(t, cmd)
		kill(t, s.cmd.Process.Pid, syscall.SIGKILL)
		s.wantNothingLeft(t)
	})
	t.Run("the process of --while", func(t *testing.T) {
		t.Parallel()
		owner := exec.Command("sleep", "300")
		if err := owner.Start(); err != nil {
			t.Fatal(err)
		}
		s := await(t, local(t, "exec", "--servers", "redis", "--while", strconv.Itoa(owner.Process.Pid),
			"--", "sh", "-c", "echo $$ $SHOP_STACK; "+forever))
		kill(t, owner.Process.Pid, syscall.SIGKILL)
		_ = owner.Wait()
		s.wantNothingLeft(t)
		if code := s.code(t); code != 2 {
			t.Errorf("exit code %d, want 2", code)
		}
	})
}

// forever2 is forever without quotes.
const forever2 = "sleep 300 & sleep 300; wait"

func shell(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// The worst case: both that could clean up are killed at once. On Linux the
// kernel ends the servers; the folder waits for the next command.
func TestEndings_WithoutSupervisorAndUndertakerServersEnd(t *testing.T) {
	t.Parallel()
	s := begin(t, everything, forever)
	supervisor, undertaker := role(t, "supervisor", s.dir), role(t, "undertaker", s.dir)
	kill(t, supervisor, syscall.SIGSTOP) // it must not start another
	kill(t, undertaker, syscall.SIGKILL)
	kill(t, supervisor, syscall.SIGKILL)
	eventually(t, "the servers and the command have ended", func() bool {
		running := ps(t)
		for _, pid := range s.members {
			if running[pid].alive() {
				return false
			}
		}
		return true
	})
	eventually(t, "a later command removes the folder", func() bool {
		stack.Sweep()
		_, err := os.Stat(s.dir)
		return os.IsNotExist(err)
	})
}
