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

// TestMain makes this test binary the command itself when a test starts it so.
func TestMain(m *testing.M) {
	stack.Reexec()
	if os.Getenv(asCommand) != "" {
		os.Exit(run(os.Args[1:]))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // of the commands started here
	for _, name := range []string{"SHOP_STACK", "SHOP_POSTGRES_URL", "SHOP_REDIS_URL", "SHOP_ETCD_ENDPOINTS", "SHOP_MONGO_URL"} {
		_ = os.Unsetenv(name) // the tests of all the rest run inside such a command
	}
	os.Exit(m.Run())
}

const asCommand = "LOCAL_TEST_COMMAND"

// everything is one server of each kind that starts by itself.
var everything = strings.Join(stack.Kinds(), ",")

// patience bounds what must happen but may be slow on a busy machine.
const patience = 30 * time.Second

// local is the command, started with args in a process group of its own.
func local(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Stderr = t.Output()
	return cmd
}

// session is a command that runs, with what its stack consists of.
type session struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	dir     string
	members []int // supervisor, undertaker, servers, the command's own processes
	ended   chan error
}

// begin starts `exec -- sh -c script` and waits until it says that it runs. The
// script sees its own standard input; the first line it prints is its pid.
func begin(t *testing.T, servers, script string) *session {
	t.Helper()
	return await(t, local(t, "exec", "--servers", servers, "--", "sh", "-c", "echo $$ $SHOP_STACK; "+script))
}

// forever is a script that ends by no signal it can refuse, with a child.
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
		t.Fatalf("the command said %q: %v", line, err)
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

// wantNothingLeft: neither a process nor the folder.
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
	case <-time.After(patience):
		t.Fatal("the command does not end")
		return 0
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %s: %s", patience, what)
		}
	}
}

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}
