// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"shop/compose/local/stack"
)

// TestMain runs the command itself when a test has started this binary as asCommand.
func TestMain(m *testing.M) {
	stack.Reexec()
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:]))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // for the commands started here
	for _, name := range []string{"SHOP_STACK", "SHOP_POSTGRES_URL", "SHOP_REDIS_URL", "SHOP_ETCD_ENDPOINTS", "SHOP_MONGO_URL"} {
		_ = os.Unsetenv(name) // `make test` sets them
	}
	os.Exit(m.Run())
}

const asCommand = "LOCAL_TEST_COMMAND"

// everything is the list of kinds that start by default.
var everything = strings.Join(stack.Kinds(), ",")

// waitLimit bounds each wait of a test; a busy machine is slow.
const waitLimit = 30 * time.Second

// local is the command, started with args in a process group of its own.
func local(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = t.Output()
	return cmd
}

// session is a running command with the processes of its stack.
type session struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	dir     string
	members []int // supervisor, reaper, servers, the command's own processes
	ended   chan error
}

// begin starts `exec -- sh -c script` and waits for the script's first line: its pid
// and the stack's folder. The script reads the session's in.
func begin(t *testing.T, servers, script string) *session {
	t.Helper()
	return await(t, local(t, "exec", "--servers", servers, "--", "sh", "-c", "echo $$ $SHOP_STACK; "+script))
}

// forever is a script with a child that ignores every signal that can be ignored.
const forever = "trap '' INT TERM HUP; sleep 300 & sleep 300; wait"

func await(t *testing.T, cmd *exec.Cmd) *session {
	t.Helper()
	s := &session{cmd: cmd, ended: make(chan error, 1)}
	var err error
	if s.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the command printed %q: %v", line, err)
	}
	first, dir, _ := strings.Cut(strings.TrimSpace(line), " ")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	s.dir = dir
	eventually(t, "the script has its children", func() bool { return len(descendants(t, pid)) >= 2 })
	s.members = append(descendants(t, role(t, "supervisor", dir)), descendants(t, pid)...)
	go func() { s.ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return s
}

// wantNothingLeft waits until all processes and the folder of the stack are gone.
func (s *session) wantNothingLeft(t *testing.T) {
	t.Helper()
	eventually(t, "all processes have ended", func() bool {
		running := ps(t)
		for _, pid := range s.members {
			if running[pid].alive() {
				return false
			}
		}
		return true
	})
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(s.dir)
		return errors.Is(err, os.ErrNotExist)
	})
	for pid, p := range ps(t) {
		if strings.Contains(p.args, s.dir) && p.alive() {
			t.Errorf("left: %d %s", pid, p.args)
		}
	}
}

func (s *session) code(t *testing.T) int {
	t.Helper()
	select {
	case <-s.ended:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(waitLimit):
		t.Fatalf("the command has not ended within %s", waitLimit)
		return 0
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(waitLimit); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", waitLimit, what)
		}
	}
}

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

type proc struct {
	parent int
	state  string
	args   string
}

func (p proc) alive() bool { return p.state != "" && p.state[0] != 'Z' }

// ps lists processes with the ps program, not with the code under test.
func ps(t *testing.T) map[int]proc {
	t.Helper()
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,state=,args=").Output()
	if err != nil {
		t.Fatalf("ps (package procps): %v", err)
	}
	all := map[int]proc{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		pid, _ := strconv.Atoi(f[0])
		parent, _ := strconv.Atoi(f[1])
		all[pid] = proc{parent: parent, state: f[2], args: strings.Join(f[3:], " ")}
	}
	return all
}

// descendants lists a process and all its descendants.
func descendants(t *testing.T, pid int) []int {
	t.Helper()
	all, found := ps(t), []int{pid}
	for n := 0; n < len(found); n++ {
		for child, p := range all {
			if p.parent == found[n] {
				found = append(found, child)
			}
		}
	}
	return found
}

// role finds the supervisor or the reaper of a stack.
func role(t *testing.T, name, dir string) int {
	t.Helper()
	for pid, p := range ps(t) {
		if strings.HasPrefix(p.args, "shop-stack-"+name+" "+dir) && p.alive() {
			return pid
		}
	}
	t.Fatalf("no %s of %s runs", name, dir)
	return 0
}
