// SPDX-License-Identifier: MIT

package stack

import (
	"errors"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Goal: a signal reaches the intended process or none.

// sleeper starts a process that would outlive the test.
func sleeper(t *testing.T) process {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = p.signal(syscall.SIGKILL); <-ended })
	return p
}

func TestSignal_NeverReachesAnotherProcess(t *testing.T) {
	p := sleeper(t)
	before := process{PID: p.PID, Start: "the start of an earlier process with this pid"}
	if err := before.signal(syscall.SIGKILL); !errors.Is(err, errReused) {
		t.Fatalf("signal to a reused pid: %v, want errReused", err)
	}
	for _, a := range []adoptee{{Process: before}, {Process: before, Group: true}} {
		if err := a.kill(); err != nil {
			t.Fatalf("kill of a process that is gone: %v", err)
		}
	}
	if !p.alive() || before.alive() {
		t.Fatal("alive compared the pid only")
	}
}

func TestKillAll_EndsAPausedProcess(t *testing.T) {
	p := sleeper(t)
	if err := p.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := (adoptee{Process: p}).kill(); err != nil {
		t.Fatal(err)
	}
	if p.alive() {
		t.Fatal("the paused process survived")
	}
}

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
	if err := poll(10*time.Second, func() error {
		if alive() {
			return errors.New("the zombie counts as alive")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := Watch(cmd.Process.Pid); !errors.Is(err, errGone) {
		t.Errorf("Watch of a dead process: %v, want errGone", err)
	}
	_ = cmd.Wait()
}

// The leader of a group may end before its children.
func TestGroupOf_FindsTheOrphansOfALeader(t *testing.T) {
	cmd := exec.Command("sh", "-c", "sleep 300 & echo started; read line")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("started\n"))); err != nil {
		t.Fatal(err)
	}
	leader, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(groupOf(leader)); n != 2 {
		t.Fatalf("the group has %d members, want the shell and its child", n)
	}
	_ = in.Close()
	_, _ = cmd.Process.Wait()
	if n := len(groupOf(leader)); n != 1 {
		t.Fatalf("without its leader the group has %d members, want the child", n)
	}
	if err := (adoptee{Process: leader, Group: true}).kill(); err != nil {
		t.Fatal(err)
	}
	if n := len(groupOf(leader)); n != 0 {
		t.Fatalf("%d members survived", n)
	}
}

func TestAdopt_RefusesAReusedPid(t *testing.T) {
	p := sleeper(t)
	s := &supervisor{dir: t.TempDir()}
	wrong := process{PID: p.PID, Start: "another"}
	if err := s.adopt(adoptee{Process: wrong}); !errors.Is(err, errReused) {
		t.Fatalf("adopt with a reused pid: %v, want errReused", err)
	}
	if err := s.adopt(adoptee{Process: p}); err != nil {
		t.Fatal(err)
	}
	if got := readJournal(s.dir).Adopted; len(got) != 1 || got[0].Process != p {
		t.Fatalf("the journal has %v, want %v alone", got, p)
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
	err := poll(30*time.Millisecond, func() error { tries++; return want })
	if !errors.Is(err, want) || tries < 2 {
		t.Fatalf("%v after %d tries", err, tries)
	}
}
