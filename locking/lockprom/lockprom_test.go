// SPDX-License-Identifier: MIT

package lockprom_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"shop/locking"
	"shop/locking/lockprom"
)

// scripted grants after a number of busy answers. A number of renewals fail, and the next one loses the lease.
type scripted struct{ busy, failing int }

func (s *scripted) TryAcquire(_ context.Context, keys ...string) (locking.Lease, error) {
	if s.busy > 0 {
		s.busy--
		return locking.Lease{}, locking.ErrBusy
	}
	return locking.Lease{Keys: keys, Owner: "me", Fence: 1, Until: time.Now().Add(6 * time.Second)}, nil
}

func (s *scripted) Renew(_ context.Context, l locking.Lease) (locking.Lease, error) {
	if s.failing > 0 {
		s.failing--
		return l, errors.New("connection refused")
	}
	return l, locking.ErrLost
}
func (s *scripted) Release(context.Context, locking.Lease) error { return nil }

func mustNew(t *testing.T, reg prometheus.Registerer, store string) locking.Observer {
	t.Helper()
	o, err := lockprom.New(reg, store)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestNew_CountsTheEventsOfDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewPedanticRegistry()
		o := locking.Options{
			Observer: mustNew(t, reg, "redis"),
			Backoff:  locking.Backoff{Base: time.Second, Rand: func() float64 { return 1 }, Max: time.Second},
		}
		for _, works := range []time.Duration{time.Second, 4 * time.Second} {
			err := locking.Do(t.Context(), &scripted{busy: 2, failing: 1}, o, []string{"customer/4711"}, func(context.Context, locking.Lease) error {
				time.Sleep(works)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 7500*time.Millisecond)
		defer cancel()
		if _, err := locking.Acquire(ctx, &scripted{busy: 1000}, o, "customer/4711"); !errors.Is(err, locking.ErrBusy) {
			t.Fatal(err)
		}
		want := `
# HELP locking_events_total Events of locks, by store and kind.
# TYPE locking_events_total counter
locking_events_total{kind="acquired",store="redis"} 2
locking_events_total{kind="attempt",store="redis"} 14
locking_events_total{kind="busy",store="redis"} 12
locking_events_total{kind="failed",store="redis"} 0
locking_events_total{kind="left",store="redis"} 0
locking_events_total{kind="lost",store="redis"} 1
locking_events_total{kind="released",store="redis"} 2
locking_events_total{kind="renew_failed",store="redis"} 1
locking_events_total{kind="renewed",store="redis"} 0
locking_events_total{kind="timed_out",store="redis"} 1
`
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want), "locking_events_total"); err != nil {
			t.Error(err)
		}
		// Waits of 2 s, 2 s, and 7.5 s until a time-out; holds of 1 s and 4 s.
		checkHistogram(t, reg, "locking_wait_seconds", 3, 11.5)
		checkHistogram(t, reg, "locking_hold_seconds", 2, 5)
	})
}

func checkHistogram(t *testing.T, reg prometheus.Gatherer, name string, count uint64, sum float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		h := family.GetMetric()[0].GetHistogram()
		if h.GetSampleCount() != count || h.GetSampleSum() != sum {
			t.Errorf("%s: %d observations, sum %v; want %d, %v", name, h.GetSampleCount(), h.GetSampleSum(), count, sum)
		}
		return
	}
	t.Errorf("%s is missing", name)
}

func TestNew_KeysAreNotALabel(t *testing.T) {
	reg := prometheus.NewRegistry()
	observe := mustNew(t, reg, "redis")
	for _, key := range []string{"customer/1", "customer/2", "customer/3"} {
		for _, kind := range []locking.Kind{locking.Attempt, locking.Acquired, locking.Released, "something new"} {
			observe(locking.Event{Kind: kind, Keys: []string{key}, Owner: key})
		}
	}
	if n, err := testutil.GatherAndCount(reg); err != nil || n != 10+3 {
		t.Errorf("%d series, %v; want one for each kind and three histograms", n, err)
	}
}

func TestNew_HoldOfALostLeaseIsCountedOnce(t *testing.T) {
	reg := prometheus.NewRegistry()
	observe := mustNew(t, reg, "redis")
	observe(locking.Event{Kind: locking.Lost, Held: time.Second})
	observe(locking.Event{Kind: locking.Left, Held: 2 * time.Second})
	checkHistogram(t, reg, "locking_hold_seconds", 1, 2)
}

func TestNew_StoresShareTheMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	for _, store := range []string{"redis", "etcd", "redis"} {
		mustNew(t, reg, store)(locking.Event{Kind: locking.Busy})
	}
	for store, want := range map[string]float64{"redis": 2, "etcd": 1} {
		if got := busy(t, reg, store); got != want {
			t.Errorf("%s: %v busy, want %v", store, got, want)
		}
	}
}

func TestNew_LagOfARenewal(t *testing.T) {
	reg := prometheus.NewRegistry()
	observe := mustNew(t, reg, "redis")
	observe(locking.Event{Kind: locking.Renewed, Wait: 500 * time.Millisecond, Held: time.Second})
	observe(locking.Event{Kind: locking.RenewFailed, Wait: time.Second})
	checkHistogram(t, reg, "locking_renew_lag_seconds", 1, 0.5)
}

// busy reads one counter as Prometheus would.
func busy(t *testing.T, reg prometheus.Gatherer, store string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].GetMetric() {
		labels := map[string]string{}
		for _, pair := range m.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		if labels["store"] == store && labels["kind"] == "busy" {
			return m.GetCounter().GetValue()
		}
	}
	return 0
}

func TestNew_NameOfAnotherMetricIsAnError(t *testing.T) {
	for _, name := range []string{"locking_events_total", "locking_wait_seconds", "locking_hold_seconds", "locking_renew_lag_seconds"} {
		reg := prometheus.NewRegistry()
		reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: "Something else."}))
		if o, err := lockprom.New(reg, "redis"); err == nil || o != nil {
			t.Errorf("%s is taken: got %v", name, err)
		}
	}
}
