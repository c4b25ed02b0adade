// SPDX-License-Identifier: MIT

package site

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
)

func TestSidecar_IsStartedAgainWhenItEndsAndStoppedBeforeTheReplicas(t *testing.T) {
	program := replicaProgram(t, "good")
	born := make(chan int, 10)
	program.Adopt = func(pid int) error { born <- pid; return nil }
	program.Sidecar = func() []string { return testbed.ReplicaArgs("good")(0, "127.0.0.1:0", "127.0.0.1:0") }
	replicas, err := StartReplicas(t.Context(), program, 1, NewCounters(""))
	if err != nil {
		t.Fatal(err)
	}
	defer replicas.KillAll()
	replica, first := <-born, <-born
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil || first == replica {
		t.Fatalf("replica %d, sidecar %d: %v", replica, first, err)
	}
	second := <-born
	replicas.sidecar.stop()
	if alive := syscall.Kill(second, 0) == nil; alive || syscall.Kill(replica, 0) != nil {
		t.Errorf("stopped: the sidecar is alive: %v; the replica must be", alive)
	}
	replicas.Stop(t.Context())
	if len(born) != 0 {
		t.Error("it was started again after it was stopped")
	}
}

func TestSidecar_KilledWithTheReplicasAlsoWhileItCannotStart(t *testing.T) {
	program := replicaProgram(t, "good")
	tried := make(chan bool, 100)
	program.Sidecar = func() []string { tried <- true; return testbed.ReplicaArgs("broken")(0, "", "") }
	replicas, err := StartReplicas(t.Context(), program, 1, NewCounters(""))
	if err != nil {
		t.Fatal(err)
	}
	<-tried
	<-tried
	replicas.KillAll()
	log, err := os.ReadFile(program.Logs + "/sidecar.log")
	if err != nil || !strings.Contains(string(log), "no database") {
		t.Errorf("its log: %s, %v", log, err)
	}
}

func TestReplicas_CanBePausedAndResumedAndReportTheirEnd(t *testing.T) {
	replicas, err := StartReplicas(t.Context(), replicaProgram(t, "good"), 1, NewCounters(""))
	if err != nil {
		t.Fatal(err)
	}
	defer replicas.KillAll()
	ended := replicas.Ended(0)
	if err := replicas.Pause(0); err != nil {
		t.Fatal(err)
	}
	for aliveWithin(replicas.all[0].addr, time.Second) { // the signal takes a moment; the test's timeout is the limit
	}
	if err := replicas.Resume(0); err != nil {
		t.Fatal(err)
	}
	if !alive(replicas.all[0].addr) {
		t.Error("resumed, and it does not answer")
	}
	select {
	case <-ended:
		t.Error("it ended")
	default:
	}
	if err := syscall.Kill(replicas.all[0].cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-ended
	if err := replicas.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	select {
	case <-replicas.Ended(0):
		t.Error("the second life is taken for the first")
	default:
	}
	if err := replicas.Kill(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(replicas.Exits(), "; "); got != "replica 1 exited by itself: signal: killed" {
		t.Errorf("exits: %s; want that of the first life alone", got)
	}
}

// A replica with a failpoint may be killed by it before it is seen ready.
func TestReplicas_AReplicaThatKillsItselfHasStartedOneThatFailsHasNot(t *testing.T) {
	program := replicaProgram(t, "good")
	args := program.Args
	program.Args = func(n int, listen, metrics string) []string { return args(n, listen, metrics)[:1] }
	replicas := &Replicas{program: program, all: []*replica{{addr: "127.0.0.1:1", metrics: "127.0.0.1:1"}}, Counters: NewCounters("")}
	if err := replicas.Start(t.Context(), 0, "suicide", "", ""); err != nil {
		t.Errorf("a SIGKILL by its own hand: %v", err)
	}
	<-replicas.Ended(0)
	if err := replicas.Start(t.Context(), 0, "broken", "", ""); err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("error %v, want its last words", err)
	}
}
