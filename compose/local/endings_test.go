// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"shop/compose/local/stack"
	"shop/locking/servertest/daemon"
)

// Goal: nothing remains, however the command ends. Method: a command with a child ignores
// every signal that can be ignored; one of the processes involved is killed; then ps lists
// the remaining ones.

func TestEndings_SIGKILLOfAnySingleProcessLeavesNothing(t *testing.T) {
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

func TestEndings_AKilledReaperIsReplaced(t *testing.T) {
	t.Parallel()
	s := begin(t, "redis", "sleep 300 & read line; exit 5")
	first := role(t, "reaper", s.dir)
	kill(t, first, syscall.SIGKILL)
	eventually(t, "another reaper runs", func() bool {
		for pid, p := range ps(t) {
			if pid != first && p.alive() && p.args == "shop-stack-reaper "+s.dir {
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

// A test that waits for a reply of a dead server may wait for ever.
func TestEndings_ADeadServerEndsTheCommandAndIsNamed(t *testing.T) {
	t.Parallel()
	for _, name := range stack.Kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stderr strings.Builder
			cmd := local(t, "exec", "--servers", name, "--", "sh", "-c", "echo $$ $SHOP_STACK; "+forever)
			cmd.Stderr = &stderr
			s := await(t, cmd)
			victim := attach(t, s, name)
			kill(t, victim.PID, syscall.SIGKILL)
			if code := s.code(t); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			wantContains(t, stderr.String(), fmt.Sprintf("%s (pid %d) died: signal: killed; last log lines:\n", name, victim.PID))
			s.wantNothingLeft(t)
		})
	}
}

// The same server with --restart: the command goes on, and its lab may end Redis too. The end of another server still
// ends the command.
func TestEndings_ADeadServerIsStartedAgainIfTheCommandSaysSo(t *testing.T) {
	t.Parallel()
	s := await(t, local(t, "exec", "--servers", "redis-memory,etcd3,etcd", "--restart", "redis-memory,etcd3", "--", "sh", "-c", "echo $$ $SHOP_STACK; test $SHOP_LAB_KILL = redis || exit 1; "+forever2))
	for _, name := range []string{"redis-memory", "etcd3-2"} {
		first := attach(t, s, name)
		kill(t, first.PID, syscall.SIGKILL)
		eventually(t, "another process of "+name+" runs", func() bool {
			now := attach(t, s, name)
			return now.State == daemon.Running && now.PID != first.PID && now.Addr == first.Addr
		})
	}
	kill(t, attach(t, s, "etcd").PID, syscall.SIGKILL)
	if code := s.code(t); code != 2 {
		t.Errorf("exit code %d, want 2", code)
	}
	s.wantNothingLeft(t)
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

// attach returns the handle of a server of the session's stack.
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

// A paused server does not receive SIGTERM.
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

// A replica is in a process group of its own, not in the command's.
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
		t.Error("the replica ended without a signal")
	}
	s.wantNothingLeft(t)
}

// `go run` (exec's parent) and make (the process of --while) may be killed.
func TestEndings_ExecEndsWithItsOwner(t *testing.T) {
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

// Supervisor and reaper are killed at once. On Linux the kernel ends the servers; the
// next command removes the folder.
func TestEndings_WithoutSupervisorAndReaperServersEnd(t *testing.T) {
	t.Parallel()
	s := begin(t, everything, forever)
	supervisor, reaper := role(t, "supervisor", s.dir), role(t, "reaper", s.dir)
	kill(t, supervisor, syscall.SIGSTOP) // it must not start another reaper
	kill(t, reaper, syscall.SIGKILL)
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

func TestEndings_UpEndsWithDownOrWithItsSupervisor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"down", "SIGKILL"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := local(t, "up", "--servers", "redis,postgres").Output()
			if err != nil {
				t.Fatal(err)
			}
			s := &session{dir: setting(t, string(out), "SHOP_STACK")}
			t.Cleanup(func() { // the test may fail before it ends the stack
				if attached, err := stack.Attach(s.dir); err == nil {
					_ = attached.End()
				}
			})
			supervisor := role(t, "supervisor", s.dir)
			s.members = descendants(t, supervisor)
			status, err := local(t, "status").Output()
			if err != nil {
				t.Fatal(err)
			}
			wantContains(t, string(status), s.dir, "redis", "postgres", daemon.Running)
			if name == "SIGKILL" {
				kill(t, supervisor, syscall.SIGKILL)
			} else {
				down := local(t, "down")
				down.Env = append(down.Env, "SHOP_STACK="+s.dir)
				if err := down.Run(); err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat(s.dir); err == nil {
					t.Error("down returned before the folder was gone")
				}
			}
			s.wantNothingLeft(t)
		})
	}
}

func TestEndings_AFailedStartSaysWhatToDo(t *testing.T) {
	t.Parallel()
	cmd := local(t, "exec", "--servers", "redis", "--", "true")
	cmd.Stderr = nil
	cmd.Env = append(cmd.Env, "SHOP_REDIS_SERVER="+filepath.Join(t.TempDir(), "no-redis"))
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("exec succeeded without a Redis program")
	}
	wantContains(t, string(out), "SHOP_REDIS_SERVER", "is not a program")
}
