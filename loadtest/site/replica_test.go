// SPDX-License-Identifier: MIT

package site

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
)

func replicaProgram(t *testing.T, mode string) Program {
	t.Helper()
	t.Setenv("SHOP_STRATEGY", "naive") // must not reach a replica
	return Program{Path: os.Args[0], Args: testbed.ReplicaArgs(mode), Spawn: (*exec.Cmd).Start, Logs: t.TempDir()}
}

// guard counts an event of these tests' replicas.
func guard() *Counters { return NewCounters("inventory", "guard_tripped") }

// alive waits as long as a busy machine may need; a dead replica refuses at once.
func alive(addr string) bool { return aliveWithin(addr, 30*time.Second) }

func aliveWithin(addr string, wait time.Duration) bool {
	client := http.Client{Timeout: wait, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + addr + "/readyz")
	if err == nil {
		_ = res.Body.Close()
	}
	return err == nil
}

func TestReplicas_ARestartedReplicaKeepsItsAddressAndItsCounts(t *testing.T) {
	adopted := 0
	program := replicaProgram(t, "good")
	program.Adopt = func(int) error { adopted++; return nil }
	replicas, err := StartReplicas(t.Context(), program, 1, guard())
	if err != nil {
		t.Fatal(err)
	}
	defer replicas.KillAll()
	replicas.busyWait, replicas.Counters.wait = time.Minute, time.Minute // a busy machine is slow
	addr := replicas.all[0].addr
	// Idle; busy, and idle again when it is stopped: it goes on; busy, and still so when it is
	// stopped; killed, and its client does not know yet; known to be cut off.
	underWay, asked := []int{0, 1, 0, 1, 1, 1, 0}, 0
	replicas.UnderWay = func(int) int { asked++; return underWay[min(asked, len(underWay))-1] }
	if err := replicas.Kill(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if asked != len(underWay) {
		t.Errorf("asked %d times for a request to interrupt, want %d", asked, len(underWay))
	}
	if alive(addr) {
		t.Error("killed, and it still answers")
	}
	if err := replicas.Start(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if !alive(addr) {
		t.Error("started again, and it does not answer")
	}
	replicas.Stop(t.Context())
	if alive(addr) {
		t.Error("stopped, and it still answers")
	}
	if n := replicas.Counters.Sum()["guard_tripped"]; n != 6 || adopted != 2 {
		t.Errorf("counted %d, adopted %d; want 6, of two lives with 3 each, and 2", n, adopted)
	}
}

func TestReplicas_AStoppedReplicaIsReportedAndCanBeDestroyed(t *testing.T) {
	replicas, err := StartReplicas(t.Context(), replicaProgram(t, "good"), 1, guard())
	if err != nil {
		t.Fatal(err)
	}
	defer replicas.KillAll()
	if replicas.Stopped(0) || replicas.Healthy(t.Context(), 0, "locks") {
		t.Error("it stands still, or says of a store that it has none of that it is ok")
	}
	if err := replicas.Pause(0); err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for !replicas.Stopped(0) {
		if !fault.Wait(limit, pollEvery) {
			t.Fatal("it is not seen that it stands still")
		}
	}
	if !replicas.Destroy(0) {
		t.Error("it was not SIGKILL that ended it")
	}
	if replicas.Stopped(0) || alive(replicas.all[0].addr) {
		t.Error("it is destroyed, and still there")
	}
}

func TestReplicas_AFailedStartReturnsTheEndOfTheLogAndLeavesNoProcess(t *testing.T) {
	_, err := StartReplicas(t.Context(), replicaProgram(t, "broken"), 2, NewCounters(""))
	if err == nil || !strings.Contains(err.Error(), "no database") {
		t.Errorf("error %v, want the replica's last words", err)
	}
}
