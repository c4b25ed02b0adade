package fault

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"shop/compose/local/stack"
)

// mortals die at every failpoint but those that are spared.
type mortals struct {
	replicas
	spared string // a failpoint at which nobody comes by
	early  bool   // they die before they are ready
	ended  chan struct{}
}

func (m *mortals) Start(ctx context.Context, n int, extra ...string) error {
	err := m.replicas.Start(ctx, n, extra...)
	m.ended = make(chan struct{})
	if failpoint := strings.Join(extra, " "); failpoint == "" || m.spared != "" && strings.Contains(failpoint, m.spared) {
		return err
	}
	close(m.ended)
	if m.early {
		return errors.New("it ended before it was ready")
	}
	return err
}

func (m *mortals) Ended(int) <-chan struct{} { return m.ended }

func TestCrashSteps_EachStepInTurnAndEachReplicaIsStartedAgain(t *testing.T) {
	for _, early := range []bool{false, true} {
		m := &mortals{spared: "transfer/c=kill", early: early}
		f := CrashSteps{Replicas: m, Flow: "transfer", Steps: []string{"a", "b", "c", "d"}, Wait: time.Millisecond}
		events, err := f.Strike(t.Context(), 10*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			"kill 0", "start 0 --failpoint transfer/a=kill", "start 0",
			"kill 1", "start 1 --failpoint transfer/b=kill", "start 1",
			"kill 2", "start 2 --failpoint transfer/c=kill", "kill 2", "start 2",
			"kill 0", "start 0 --failpoint transfer/d=kill", "start 0",
		}
		if diff := cmp.Diff(want, m.done); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		seen := map[string]int64{"crashes": 3, "crash_a": 1, "crash_b": 1, "crash_d": 1}
		if diff := cmp.Diff(seen, sum(events)); diff != "" || len(events) != 4 {
			t.Errorf("%d events (-want +got):\n%s", len(events), diff)
		}
	}
}

func TestCrashSteps_AReplicaThatDoesNotComeBackIsAnError(t *testing.T) {
	for _, fails := range []string{"start 0", "start 0 --failpoint transfer/a=kill", "kill 0"} {
		m := &mortals{replicas: replicas{log{fails: fails}}, spared: "a"}
		f := CrashSteps{Replicas: m, Flow: "transfer", Steps: []string{"a", "b"}, Wait: time.Millisecond}
		if _, err := f.Strike(t.Context(), time.Millisecond); err == nil {
			t.Errorf("%s: no error", fails)
		}
		if last := m.done[len(m.done)-1]; fails != "kill 0" && last != "start 0" {
			t.Errorf("%s: the last thing was %s", fails, last)
		}
	}
}

// sleepers write down for how long they were stopped.
type sleepers struct {
	mu    sync.Mutex
	since map[int]time.Time
	slept map[int][]time.Duration
	fails bool
}

func (s *sleepers) Pause(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.since[n] = time.Now()
	if s.fails {
		return errors.New("no")
	}
	return nil
}

func (s *sleepers) Resume(n int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.slept[n] = append(s.slept[n], time.Since(s.since[n]))
	delete(s.since, n)
	return nil
}

func newSleepers() *sleepers {
	return &sleepers{since: map[int]time.Time{}, slept: map[int][]time.Duration{}}
}

func TestPauses_FromOneAndAHalfToFiveTTLsAndOneReplicaIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSleepers()
		events, err := Pauses{Replicas: s, TTL: 2 * time.Second}.Strike(t.Context(), 66*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		want := map[int][]time.Duration{1: {10 * time.Second}}
		for d := 3 * time.Second; d <= 10*time.Second; d += time.Second {
			want[0] = append(want[0], d)
		}
		want[0] = append(want[0], 3*time.Second) // there is time for one more of the shortest
		if diff := cmp.Diff(want, s.slept); diff != "" || len(s.since) != 0 {
			t.Errorf("%d still stopped (-want +got):\n%s", len(s.since), diff)
		}
		if n := sum(events)["pauses"]; n != 10 {
			t.Errorf("%d pauses", n)
		}
	})
}

func TestPauses_AreResumedInEveryEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := newSleepers()
		events, err := Pauses{Replicas: s, TTL: 2 * time.Second}.Strike(ctx, time.Minute)
		if !errors.Is(err, context.DeadlineExceeded) || len(s.since) != 0 || len(s.slept) != 2 || len(sum(events)) != 0 {
			t.Errorf("%v, slept %v, still stopped %v, %v", err, s.slept, s.since, sum(events))
		}
		s = newSleepers()
		s.fails = true
		if events, err = (Pauses{Replicas: s, TTL: time.Second}).Strike(t.Context(), time.Minute); err == nil || len(s.since) != 0 || len(sum(events)) != 0 {
			t.Errorf("%v, still stopped %v, %v", err, s.since, sum(events))
		}
	})
}

func TestRestart_PostgresComesBackWithItsDataEachTime(t *testing.T) {
	all, err := stack.Attach(env(t, "SHOP_STACK"))
	if err != nil {
		t.Fatal(err)
	}
	postgres, err := all.Private(t.Context(), "postgres")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = postgres.Kill(context.Background()) })
	url := postgres.Env["SHOP_POSTGRES_URL"]
	exec := func(sql string) error {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer conn.Close(t.Context())
		_, err = conn.Exec(t.Context(), sql)
		return err
	}
	if err := exec("CREATE TABLE kept (id int)"); err != nil {
		t.Fatal(err)
	}
	open, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close(context.Background())
	events, err := Restart{Postgres: postgres, Times: 2}.Strike(t.Context(), time.Second)
	if err != nil || sum(events)["pg_restarts"] != 2 || events[1].At.Sub(events[0].At) < 400*time.Millisecond {
		t.Errorf("%+v, %v", events, err)
	}
	if _, err := open.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a connection has lived through it")
	}
	if err := exec("INSERT INTO kept VALUES (1)"); err != nil {
		t.Error(err)
	}
}

func TestRestart_ServerIsStartedAgainAlsoWhenTheKillFailed(t *testing.T) {
	for _, fails := range []string{"kill", "start"} {
		s := &server{log{fails: fails}}
		if _, err := (Restart{Postgres: s, Times: 1}).Strike(t.Context(), 0); err == nil || len(s.done) != 2 {
			t.Errorf("%s: %v, %v", fails, err, s.done)
		}
	}
}
