// SPDX-License-Identifier: MIT

package daemon

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The process that adopts an orphan may never wait for it, so a zombie must not count
// as alive.
func TestWatch_AZombieIsGone(t *testing.T) {
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	alive, err := Watch(cmd.Process.Pid)
	if err != nil || !alive() {
		t.Fatalf("Watch of a living process: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := Poll(10*time.Second, func() error {
		if alive() {
			return errors.New("the zombie counts as alive")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := Watch(cmd.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("Watch of a dead process: %v, want ErrGone", err)
	}
	_ = cmd.Wait()
}

func TestInspect_ReadsANameThatHoldsParentheses(t *testing.T) {
	shell, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	name := t.TempDir() + "/a) Z 1 (b"
	if out, err := exec.Command("cp", shell, name).CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	cmd := exec.Command(name, "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	d, ok := inspect(cmd.Process.Pid)
	if !ok || d.state == 'Z' || d.parent != syscall.Getpid() || strings.TrimSpace(d.Start) == "" {
		t.Fatalf("inspect: %+v, %v", d, ok)
	}
}

func TestPoll_ReturnsTheLastErrorPastItsLimit(t *testing.T) {
	want := errors.New("not yet")
	tries := 0
	err := Poll(30*time.Millisecond, func() error { tries++; return want })
	if !errors.Is(err, want) || tries < 2 {
		t.Fatalf("%v after %d tries", err, tries)
	}
}
