// SPDX-License-Identifier: MIT

package nemesis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// parts returns the parts, without their faults, of a service with two stores.
func parts(replicas int) (all []Part) {
	for n := range replicas {
		all = append(
			all,
			Part{Kind: "kill", Name: fmt.Sprintf("kill %d", n+1), Replica: n + 1, Starts: true, Shortest: time.Second, Longest: 3 * time.Second},
			Part{Kind: "pause", Name: fmt.Sprintf("pause %d", n+1), Replica: n + 1, Shortest: time.Second, Longest: 4 * time.Second},
		)
		for _, store := range []string{"redis", "postgres"} {
			all = append(all, Part{Kind: "cut " + store, Name: fmt.Sprintf("cut %d %s", n+1, store), Replica: n + 1, Store: store, Shortest: time.Second, Longest: 2 * time.Second})
		}
	}
	return append(
		all,
		Part{Kind: "redis", Name: "redis", Store: "redis", Outage: true, Shortest: time.Second, Longest: 3 * time.Second},
		Part{Kind: "locks", Name: "locks", Store: "redis", Shortest: time.Second, Longest: 3 * time.Second},
		Part{Kind: "postgres", Name: "postgres", Store: "postgres", Outage: true, Shortest: 7 * time.Second, Longest: 7 * time.Second},
		Part{Kind: "late", Name: "late", Store: "redis", Alone: true, Shortest: 4 * time.Second, Longest: 6 * time.Second},
	)
}

func plan(seed int64, over time.Duration, replicas int) Plan {
	return Plan{Seed: seed, Over: over, Replicas: replicas, Parts: parts(replicas), Calm: 10 * time.Second}
}

// broken returns the rules that a schedule breaks. It checks the moments at which faults begin, and
// uses neither rounds nor Together.
func broken(s Schedule, over time.Duration, replicas int) (found []string) {
	type span struct {
		Part
		from, to time.Duration
	}
	var all []span
	for _, r := range s {
		for _, step := range r.Steps {
			from := r.At + step.After
			all = append(all, span{step.Part, from, from + step.For})
			if from < 0 || from+step.For > over || step.For < step.Part.Shortest || step.For > step.Part.Longest {
				found = append(found, "time: "+step.Part.Name)
			}
		}
	}
	for _, a := range all { // what is broken when a begins
		stores, faulty, away, starts, there, alone := map[string]int{}, map[int]int{}, 0, 0, 0, false
		for _, b := range all {
			if b.from > a.from || b.to < a.from {
				continue
			}
			there++
			alone = alone || b.Alone
			if b.Store != "" {
				stores[b.Store]++
			}
			if b.Replica > 0 {
				faulty[b.Replica]++
			}
			if b.Outage {
				away++
			}
			if b.Starts {
				starts++
			}
		}
		for name, n := range stores {
			if n > 1 {
				found = append(found, "two at "+name)
			}
		}
		for replica, n := range faulty {
			if n > 1 {
				found = append(found, fmt.Sprintf("two at replica %d", replica))
			}
		}
		switch {
		case 2*len(faulty) >= replicas && len(faulty) > 0:
			found = append(found, "no majority of replicas is sound")
		case away > 1:
			found = append(found, "two stores away")
		case away > 0 && starts > 0:
			found = append(found, "a replica starts without a store")
		case there > 1 && alone:
			found = append(found, "not alone")
		case there > 2:
			found = append(found, "three at once")
		}
	}
	return found
}

func TestDraw_NoScheduleBreaksARule(t *testing.T) {
	for seed := range int64(300) {
		for _, replicas := range []int{2, 3, 4, 5} {
			p := plan(seed, time.Duration(10+seed)*time.Second, replicas)
			if found := broken(p.Draw(), p.Over, replicas); len(found) > 0 {
				t.Fatalf("seed %d, %d replicas: %q\n%v", seed, replicas, found, p.Draw())
			}
		}
	}
}

func TestDraw_TheCheckFindsEachBrokenRule(t *testing.T) {
	all := parts(3)
	of := func(name string) Part { return all[slices.IndexFunc(all, func(p Part) bool { return p.Name == name })] }
	for want, names := range map[string][]string{
		"two at redis":                     {"redis", "locks"},
		"two at replica 1":                 {"pause 1", "cut 1 redis"},
		"no majority of replicas is sound": {"pause 1", "pause 2"},
		"two stores away":                  {"redis", "postgres"},
		"a replica starts without a store": {"kill 1", "redis"},
		"not alone":                        {"late", "kill 1"},
		"three at once":                    {"kill 1", "locks", "cut 1 postgres"},
		"time: postgres":                   {"postgres"},
	} {
		r := Round{}
		for _, name := range names {
			r.Steps = append(r.Steps, Step{Part: of(name), For: 2 * time.Second})
		}
		if found := broken(Schedule{r}, time.Minute, 3); !slices.Contains(found, want) {
			t.Errorf("%q: found %q", want, found)
		}
		if two := names; len(two) == 2 && Together(of(two[0]), of(two[1]), 3) {
			t.Errorf("%q may be done at once", two)
		}
	}
}

func TestDraw_EachSeedHasItsOwnSchedule(t *testing.T) {
	seen := map[string]bool{}
	for seed := range int64(100) {
		once, again := text(plan(seed, time.Minute, 3).Draw()), text(plan(seed, time.Minute, 3).Draw())
		if once != again {
			t.Fatalf("seed %d:\n%s\nand\n%s", seed, once, again)
		}
		seen[once] = true
	}
	if len(seen) != 100 {
		t.Errorf("%d schedules of 100 seeds", len(seen))
	}
}

func TestDraw_EachPartComesOftenAndOftenTwoAtOnce(t *testing.T) {
	for seed := range int64(20) {
		p := plan(seed, time.Hour, 3)
		count, two := map[string]int{}, 0
		s := p.Draw()
		for _, r := range s {
			for _, step := range r.Steps {
				count[step.Part.Name]++
			}
			if len(r.Steps) > 1 {
				two++
			}
		}
		least, most := len(s), 0
		for _, part := range p.Parts {
			least, most = min(least, count[part.Name]), max(most, count[part.Name])
		}
		if least < 5 || most > 15*least || two < len(s)/5 {
			t.Errorf("seed %d: %d rounds, %d with two faults; %v", seed, len(s), two, count)
		}
	}
}

func TestDraw_GapsAreLongEnoughToJudgeLiveness(t *testing.T) {
	for seed := range int64(100) {
		p := plan(seed, 5*time.Minute, 3)
		s := p.Draw()
		for n := 1; n < len(s); n++ {
			gap := s[n].At - s[n-1].At - s[n-1].length()
			if gap < gapLeast || n%calmEvery == 0 && gap < p.Calm {
				t.Fatalf("seed %d: gap %v before round %d", seed, gap, n)
			}
		}
	}
}

func TestDraw_TwoReplicasHaveNoMinority(t *testing.T) {
	drawn := text(plan(1, 10*time.Minute, 2).Draw())
	if strings.Contains(drawn, "kill") || strings.Contains(drawn, "cut") || !strings.Contains(drawn, "redis") {
		t.Error(drawn)
	}
}

// text has a line for each fault of a schedule.
func text(s Schedule) string {
	var text strings.Builder
	for _, round := range s {
		for _, step := range round.Steps {
			fmt.Fprintln(&text, round.At+step.After, step.For, step.Part.Name)
		}
	}
	return text.String()
}
