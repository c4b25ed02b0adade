// SPDX-License-Identifier: MIT

package loadtest

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
)

// resting returns a trial of a nemesis with one replica, after the readings before the load.
func resting(t *testing.T, mode string, figures func(context.Context, *Trial, map[string]int64) ([]Figure, error)) *Trial {
	t.Helper()
	replicas, err := StartReplicas(t.Context(), replicaProgram(t, mode), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(replicas.KillAll)
	flow := nemesisFlow()
	trial := &Trial{
		Scenario: flow.Safe("good", Nemesis), Postgres: ownDatabase(t).URL, Replicas: replicas, Clients: []Credentials{{}},
		proof: &Proof{Figures: figures, Grace: time.Nanosecond, LockTTL: map[string]time.Duration{flow.Name: -LiveMargin}}, // no lock has to expire
	}
	if err := trial.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trial.Close)
	if err := trial.beforeLoad(t.Context()); err != nil {
		t.Fatal(err)
	}
	return trial
}

// leaking returns the names of the figures that are above their limits.
func leaking(t *testing.T, trial *Trial) (names []string) {
	t.Helper()
	trial.afterLoad(t.Context())
	if trial.AtRest == nil {
		t.Fatal("nothing was read after the load")
	}
	for _, text := range leaks(trial.AtRest) {
		before, _, _ := strings.Cut(text, " before the load")
		names = append(names, before[:strings.LastIndex(before, ":")])
	}
	return names
}

func TestAtRest_EachThingThatIsLeftIsFoundByItsName(t *testing.T) {
	for mode, want := range map[string][]string{
		"good":  nil,
		"leaky": {"replica 1: open files", "replica 1: goroutines"},
	} {
		trial := resting(t, mode, nil)
		for range 40 {
			_, _ = fetch(t.Context(), trial.Bases[0]+"/v1/orders", nil)
		}
		if got := leaking(t, trial); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}

func TestAtRest_ConnectionsAndLocksInPostgresAreFound(t *testing.T) {
	trial := resting(t, "good", nil)
	for range 7 {
		testbed.Exec(t, testbed.Connect(t, trial.Postgres), `BEGIN; SELECT pg_advisory_xact_lock_shared(7)`)
	}
	if got, want := leaking(t, trial), []string{"PostgreSQL: connections", "PostgreSQL: locks"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// A sweeper that runs beside the load takes its lock at rest too.
func TestAtRest_ALockThatIsReleasedBetweenTwoReadingsIsNotLeft(t *testing.T) {
	readings := []int64{0, 1, 0} // before the load, and after it
	trial := resting(t, "good", func(context.Context, *Trial, map[string]int64) ([]Figure, error) {
		n := readings[0]
		readings = readings[1:]
		return []Figure{{Name: "locks", After: n}}, nil
	})
	trial.proof.Grace = time.Minute
	if got := leaking(t, trial); len(got) > 0 || len(readings) > 0 {
		t.Errorf("left: %q; %d readings too few", got, len(readings))
	}
}

func TestAtRest_AControlNeedNotComeBack(t *testing.T) {
	trial := &Trial{Scenario: nemesisFlow().Control("naive", Nemesis, nil, "B")}
	trial.afterLoad(t.Context())
	if err := trial.beforeLoad(t.Context()); err != nil || trial.AtRest != nil {
		t.Errorf("%v, %v", trial.AtRest, err)
	}
}

func TestLeaks_AFigureMayExceedTheOneBeforeByItsSlack(t *testing.T) {
	found := leaks([]Figure{{"replica 1: memory, MiB", 30, 94, 64}, {"replica 2: memory, MiB", 30, 95, 64}, {"replica 3: memory, MiB", 30, 20, 64}})
	if want := "replica 2: memory, MiB: 30 before the load, 95 after it, limit 94"; !slices.Equal(found, []string{want}) {
		t.Errorf("%q, want %q", found, want)
	}
}

// A pool keeps connections that it opened while a store was away.
func TestFigures_AnIdleConnectionOfAPoolDoesNotCount(t *testing.T) {
	const page = `# TYPE go_goroutines gauge
go_goroutines 42
# TYPE pool_connections gauge
pool_connections{server="postgres",state="idle"} 3
pool_connections{server="postgres",state="in_use"} 9
pool_connections{server="redis",state="idle"} 2
`
	bases := testbed.Serve(t, 1, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(page)) })
	idle, r := map[string]int64{}, &replica{metrics: strings.TrimPrefix(bases[0], "http://")}
	r.cmd = &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}
	got, err := r.figures(t.Context(), "replica 1", idle)
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	if idle["postgres"] != 3 || idle["redis"] != 2 || got[0].After < 1 || got[2].After != 42 {
		t.Errorf("%v, idle %v", got, idle)
	}
	if now := int64(len(files)); got[1].After > now-2 || got[1].After < now-8 { // the idle ones are 5; the request has one or two
		t.Errorf("%v, with %d open files", got[1], now)
	}
}
