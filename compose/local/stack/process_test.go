// SPDX-License-Identifier: MIT

package stack

import (
	"errors"
	"io"
	"os/exec"
	"syscall"
	"testing"

	"shop/locking/servertest/daemon"
)

// Goal: a signal reaches the intended process or none.

// sleeper starts a process that would outlive the test.
func sleeper(t *testing.T) daemon.Process {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := daemon.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = p.Signal(syscall.SIGKILL); <-ended })
	return p
}

func TestSignal_NeverReachesAnotherProcess(t *testing.T) {
	p := sleeper(t)
	before := daemon.Process{PID: p.PID, Start: "the start of an earlier process with this pid"}
	if err := before.Signal(syscall.SIGKILL); !errors.Is(err, daemon.ErrReused) {
		t.Fatalf("signal to a reused pid: %v, want ErrReused", err)
	}
	for _, a := range []adoptee{{Process: before}, {Process: before, Group: true}} {
		if err := a.kill(); err != nil {
			t.Fatalf("kill of a process that is gone: %v", err)
		}
	}
	if !p.Alive() || before.Alive() {
		t.Fatal("alive compared the pid only")
	}
}

func TestKillAll_EndsAPausedProcess(t *testing.T) {
	p := sleeper(t)
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := (adoptee{Process: p}).kill(); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Fatal("the paused process survived")
	}
}

// The stack of another version may have a kind that this one does not know.
func TestReap_EndsAServerOfAnUnknownKind(t *testing.T) {
	s := &supervisor{dir: t.TempDir()}
	p := sleeper(t)
	unknown := &daemon.Instance{Record: daemon.Record{Kind: "unknown", Dir: s.dir, First: p, State: daemon.Running}}
	if err := errors.Join(s.track([]*daemon.Instance{unknown}), reap(s.dir)); err != nil {
		t.Fatal(err)
	}
	if p.Alive() {
		t.Fatal("the server survived")
	}
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
	leader, err := daemon.Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(daemon.GroupOf(leader)); n != 2 {
		t.Fatalf("the group has %d members, want the shell and its child", n)
	}
	_ = in.Close()
	_, _ = cmd.Process.Wait()
	if n := len(daemon.GroupOf(leader)); n != 1 {
		t.Fatalf("without its leader the group has %d members, want the child", n)
	}
	if err := (adoptee{Process: leader, Group: true}).kill(); err != nil {
		t.Fatal(err)
	}
	if n := len(daemon.GroupOf(leader)); n != 0 {
		t.Fatalf("%d members survived", n)
	}
}

func TestAdopt_RefusesAReusedPid(t *testing.T) {
	p := sleeper(t)
	s := &supervisor{dir: t.TempDir()}
	wrong := daemon.Process{PID: p.PID, Start: "another"}
	if err := s.adopt(adoptee{Process: wrong}); !errors.Is(err, daemon.ErrReused) {
		t.Fatalf("adopt with a reused pid: %v, want ErrReused", err)
	}
	if err := s.adopt(adoptee{Process: p}); err != nil {
		t.Fatal(err)
	}
	if got := readJournal(s.dir).Adopted; len(got) != 1 || got[0].Process != p {
		t.Fatalf("the journal has %v, want %v alone", got, p)
	}
}
