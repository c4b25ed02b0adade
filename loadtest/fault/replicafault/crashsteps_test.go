// SPDX-License-Identifier: MIT

package replicafault

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"

	"github.com/google/go-cmp/cmp"
)

// mortals are replicas that die at every failpoint but the spared one.
type mortals struct {
	replicas
	spared string // a failpoint that no request reaches
	exit   bool   // they exit by themselves instead
	ended  chan struct{}
}

func (m *mortals) Start(ctx context.Context, n int, extra ...string) error {
	err := m.replicas.Start(ctx, n, extra...)
	m.ended = make(chan struct{})
	if failpoint := strings.Join(extra, " "); failpoint == "" || m.spared != "" && strings.Contains(failpoint, m.spared) {
		return err
	}
	close(m.ended)
	return err
}

func (m *mortals) Killed(int) bool { return !m.exit }

func (m *mortals) Ended(int) <-chan struct{} { return m.ended }

func TestCrashSteps_KillsAtEachStepAndStartsEachReplicaAgain(t *testing.T) {
	m := &mortals{spared: "transfer/c=kill"}
	f := CrashSteps{Replicas: m, Flow: "transfer", Action: "kill", Steps: []string{"a", "b", "c", "d"}, Wait: 100 * time.Millisecond}
	var events []fault.Event
	var err error
	synctest.Test(t, func(t *testing.T) { events, err = f.Inject(t.Context(), time.Second) })
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"kill 0", "start 0 --failpoint transfer/a=kill", "start 0",
		"kill 1", "start 1 --failpoint transfer/b=kill", "start 1",
		"kill 2", "start 2 --failpoint transfer/c=kill", "kill 2", "start 2",
		"kill 0", "start 0 --failpoint transfer/d=kill", "start 0",
	}
	if diff := cmp.Diff(want, m.Done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	seen := map[string]int64{"crashes": 3, "crash_a": 1, "crash_b": 1, "crash_d": 1}
	if diff := cmp.Diff(seen, fault.Seen(events)); diff != "" || len(events) != 4 {
		t.Errorf("%d events (-want +got):\n%s", len(events), diff)
	}
}

func TestCrashSteps_AnExitIsNoDeathAtAStep(t *testing.T) {
	m := &mortals{exit: true}
	events, err := CrashSteps{Replicas: m, Flow: "transfer", Action: "kill", Steps: []string{"a"}, Wait: time.Second}.Inject(t.Context(), time.Millisecond)
	if err == nil || !strings.Contains(err.Error(), "replica 1 exited by itself at a") || fault.Seen(events)["crashes"] != 0 {
		t.Errorf("%v, %v", events, err)
	}
}

func TestCrashSteps_AReplicaThatDoesNotComeBackIsAnError(t *testing.T) {
	for _, fails := range []string{"start 0", "start 0 --failpoint transfer/a=kill", "kill 0"} {
		m := &mortals{replicas: replicas{testbed.Log{Fails: fails}}, spared: "a"}
		f := CrashSteps{Replicas: m, Flow: "transfer", Action: "kill", Steps: []string{"a", "b"}, Wait: time.Millisecond}
		if _, err := f.Inject(t.Context(), time.Millisecond); err == nil {
			t.Errorf("%s: no error", fails)
		}
		if last := m.Done[len(m.Done)-1]; fails != "kill 0" && last != "start 0" {
			t.Errorf("%s: the last action was %s", fails, last)
		}
	}
}
