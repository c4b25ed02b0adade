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

// The kernel ends a child with the thread that forked it. One of the two threads may be the first of the process, which
// never ends.
func TestSpawn_TheThreadLivesAsLongAsTheChild(t *testing.T) {
	for range 2 {
		cmd := exec.Command("sleep", "300")
		if err := Spawn(cmd); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			t.Errorf("the child has ended: %v", err)
		case <-time.After(100 * time.Millisecond):
			_ = cmd.Process.Kill()
			<-ended
		}
	}
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
