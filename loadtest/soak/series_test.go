// SPDX-License-Identifier: MIT

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// An hour of twenty shifts of three minutes, read every five seconds.
const (
	shifts   = 20
	perShift = 36
)

// planted judges a series of an hour of readings that at returns, with rest as the reading at rest.
func planted(g Gauge, rest float64, at func(shift, reading int, minute float64) float64) Series {
	s := Series{Gauge: g, Points: []Point{{Value: at(1, 0, 0), shift: before}}}
	for shift := 1; shift <= shifts; shift++ {
		for n := range perShift {
			minute := float64((shift-1)*perShift+n) * 5 / 60
			s.Points = append(s.Points, Point{At: minute * 60, Value: at(shift, n, minute), shift: shift})
		}
	}
	s.Points = append(s.Points, Point{At: 3700, Value: rest, shift: atRest})
	return s.judge(shifts)
}

// gauge finds a gauge of a source, so that the tolerance under test is the one in use.
func gauge(t *testing.T, s Source, name string) Gauge {
	t.Helper()
	i := slices.IndexFunc(s.Gauges, func(g Gauge) bool { return strings.HasSuffix(g.Name, name) })
	if i < 0 {
		t.Fatalf("no gauge %q", name)
	}
	return s.Gauges[i]
}

func TestJudge_EachPlantedLeakOfAnHourIsFound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := func(of float64) float64 { return of * (2*random.Float64() - 1) }
	process := Process("replica 1", func() int { return 1 }, "127.0.0.1:1")
	postgres, redis, etcd, mongo := Postgres(""), Redis(nil, "p"), Etcd(nil, "p"), Mongo(nil, "n")
	for _, c := range []struct {
		what  string
		gauge Gauge
		at    func(shift, n int, minute float64) float64
	}{
		{"1 connection a minute", gauge(t, postgres, "connections"), func(_, _ int, m float64) float64 { return 50 + noise(4) + m }},
		{"1 connection a minute", gauge(t, redis, "connections"), func(_, _ int, m float64) float64 { return 30 + noise(3) + m }},
		{"1 connection a minute", gauge(t, mongo, "connections"), func(_, _ int, m float64) float64 { return 60 + noise(4) + m }},
		{"1 open file a minute", gauge(t, process, "open files"), func(_, _ int, m float64) float64 { return 90 + noise(8) + m }},
		{"1 MiB a minute", gauge(t, process, "memory"), func(_, _ int, m float64) float64 { return 60 + noise(5) + m }},
		{"2 goroutines a minute", gauge(t, process, "goroutines"), func(_, _ int, m float64) float64 { return 80 + noise(20) + 2*m }},
		{"1 thread a minute", gauge(t, process, "threads"), func(_, _ int, m float64) float64 { return 12 + m }},
		{"1 lease a minute", gauge(t, etcd, "leases"), func(_, _ int, m float64) float64 { return 4 + m }},
		{"1 MiB a minute", gauge(t, etcd, "size in use"), func(_, _ int, m float64) float64 { return 5 + m }},
		{"keys that are never purged", gauge(t, postgres, "idempotency keys"), func(_, _ int, m float64) float64 { return 3000 * m }},
		{"one key in ten that is not purged", gauge(t, postgres, "idempotency keys"), func(shift, n int, _ float64) float64 { return 250*float64(n) + 900*float64(shift) }},
		{"lock records of one request in ten", gauge(t, redis, "locks"), func(_, _ int, m float64) float64 { return 5 + 60*m }},
		{"refusals that are not purged", gauge(t, mongo, "refused operations"), func(_, _ int, m float64) float64 { return 200 * m }},
		{"a counter for each lock", gauge(t, redis, "counters of fences"), func(_, _ int, m float64) float64 { return 60 * m }},
	} {
		s := planted(c.gauge, c.at(shifts, perShift, 60), c.at)
		if s.Verdict != Grows || s.Why == "" {
			t.Errorf("%s, %s: %s (%s): second fifth %.1f, last %.1f, limit %.1f", s.Name, c.what, s.Verdict, s.Why, s.Early, s.Late, s.Limit)
		}
	}
}

func TestJudge_NoiseAndWhatIsPurgedAfterEachShiftAreBounded(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	noise := func(of float64) float64 { return of * (2*random.Float64() - 1) }
	postgres := Postgres("")
	process := Process("replica 1", func() int { return 1 }, "127.0.0.1:1")
	for _, c := range []struct {
		gauge Gauge
		rest  float64
		at    func(shift, n int, minute float64) float64
	}{
		{gauge(t, postgres, "connections"), 48, func(int, int, float64) float64 { return 45 + noise(6) }},
		{gauge(t, postgres, "idempotency keys"), 9000, func(_, n int, _ float64) float64 { return 250 * float64(n) }},
		{gauge(t, process, "memory"), 70, func(_, _ int, m float64) float64 { return 40 + min(m, 12)*3 + noise(8) }}, // a warm-up
		{gauge(t, process, "goroutines"), 35, func(_, n int, _ float64) float64 { return 30 + 2*float64(n%40) + noise(10) }},
		{gauge(t, postgres, "open transactions"), 0, func(int, int, float64) float64 { return 3 + noise(3) }},
	} {
		if s := planted(c.gauge, c.rest, c.at); s.Verdict != Bounded {
			t.Errorf("%s: %s (%s)", s.Name, s.Verdict, s.Why)
		}
	}
}

// While a store is unavailable, pools grow: early or late in a soak, once or twice.
func TestJudge_AStepOfAPoolIsNoLeak(t *testing.T) {
	connections := gauge(t, Mongo(nil, "n"), "connections")
	for name, at := range map[string]func(shift, n int, minute float64) float64{
		"late": func(shift, n int, _ float64) float64 {
			return map[bool]float64{false: 48, true: 100}[shift > 16] + float64(n%2)
		},
		"early": func(shift, n int, _ float64) float64 {
			return map[bool]float64{false: 48, true: 100}[shift > 8] + float64(n%2)
		},
		"twice": func(shift, _ int, _ float64) float64 { return 48 + 20*float64(shift/9) },
	} {
		if s := planted(connections, 100, at); s.Verdict != Bounded || s.Late <= s.Limit {
			t.Errorf("a step %s: %s (%s), second fifth %g, last %g", name, s.Verdict, s.Why, s.Early, s.Late)
		}
	}
}

func TestJudge_LeftoversAtRestAreFound(t *testing.T) {
	postgres, redis, etcd, mongo := Postgres(""), Redis(nil, "p"), Etcd(nil, "p"), Mongo(nil, "n")
	process := Process("replica 1", func() int { return 1 }, "127.0.0.1:1")
	for _, g := range []Gauge{
		gauge(t, postgres, "open transactions"), gauge(t, postgres, "locks of rows and keys"), gauge(t, postgres, "holds that are not ended"),
		gauge(t, redis, "locks"), gauge(t, etcd, "locks"), gauge(t, mongo, "open transactions"),
	} {
		constant := func(int, int, float64) float64 { return 2 }
		if s := planted(g, 1, constant); s.Verdict != Left || *s.RestMax != 0 {
			t.Errorf("%s: 1 at rest is %s (%s)", s.Name, s.Verdict, s.Why)
		}
		if s := planted(g, 0, constant); s.Verdict != Bounded {
			t.Errorf("%s: 0 at rest is %s (%s)", s.Name, s.Verdict, s.Why)
		}
	}
	busy := func(_, n int, _ float64) float64 { return 30 + float64(n) } // 30 before the load
	if s := planted(gauge(t, process, "goroutines"), 51, busy); s.Verdict != Left {
		t.Errorf("21 goroutines more than before the load: %s (%s)", s.Verdict, s.Why)
	}
	if s := planted(gauge(t, process, "goroutines"), 50, busy); s.Verdict != Bounded {
		t.Errorf("20 goroutines more than before the load: %s (%s)", s.Verdict, s.Why)
	}
}

func TestJudge_ASeriesWithTooFewReadingsIsVoid(t *testing.T) {
	for name, drop := range map[string]func(Point) bool{
		"at rest":              func(p Point) bool { return p.shift == atRest },
		"in the second fifth":  func(p Point) bool { return p.shift >= 5 && p.shift <= 7 },
		"in the last fifth":    func(p Point) bool { return p.shift >= 18 },
		"at all":               func(Point) bool { return true },
		"but in one shift":     func(p Point) bool { return p.shift != 6 },
		"once the load is on ": func(p Point) bool { return p.shift != before },
	} {
		s := planted(Gauge{Name: "g"}, 1, func(int, int, float64) float64 { return 1 })
		s.Points = slices.DeleteFunc(s.Points, drop)
		if s = s.judge(shifts); s.Verdict != Void || s.Holds() {
			t.Errorf("not read %s: %s", name, s.Verdict)
		}
	}
	s := planted(Gauge{Name: "g"}, 1, func(int, int, float64) float64 { return 1 })
	if s = s.judge(FewestShifts - 1); s.Verdict != Void {
		t.Errorf("%d shifts: %s", FewestShifts-1, s.Verdict)
	}
}

func TestJudge_WhatGrowsByNatureIsNotJudged(t *testing.T) {
	s := planted(Gauge{Name: "clients", Nature: true}, 9, func(_, _ int, m float64) float64 { return m })
	if s.Verdict != ByNature || !s.Holds() {
		t.Errorf("%s", s.Verdict)
	}
}

func TestWatch_AnErrorLeavesAGapAndEachReadingHasItsShift(t *testing.T) {
	round := 0
	w := New(Source{Gauges: []Gauge{{Name: "a"}, {Name: "b"}}, Read: func(context.Context) ([]float64, error) {
		round++
		switch round {
		case 2:
			return nil, errors.New("it is down")
		case 3:
			return []float64{1}, nil // half an answer
		}
		return []float64{float64(round), float64(10 * round)}, nil
	}})
	w.Look(t.Context())
	w.Shift()
	for range 3 {
		w.Look(t.Context())
	}
	w.Rest()
	w.Look(t.Context())
	var seen []string
	for _, p := range w.series[0][1].Points {
		seen = append(seen, fmt.Sprintf("%d:%g", p.shift, p.Value))
	}
	if got := strings.Join(seen, " "); got != "0:10 1:40 -1:50" {
		t.Errorf("%s", got)
	}
}

func TestThin_ALongSoakKeepsItsPeaks(t *testing.T) {
	points := make([]Point, 5760) // eight hours
	points[1234].Value = 7
	kept := thin(points)
	if len(kept) > pointsMost || highest(kept) != 7 {
		t.Errorf("%d points, highest %g", len(kept), highest(kept))
	}
}
