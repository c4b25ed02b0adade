// SPDX-License-Identifier: MIT

package lab

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// meetings are what the requests of a lane meet, by their points. The requests come in this order, each twice.
func meetings(t *testing.T, s Settings, order []int) map[point]string {
	t.Helper()
	l := newLane(s, s.Strategies[0])
	met := map[point]string{}
	for _, request := range append(order, order...) {
		for _, at := range l.flow.moments {
			work, hit, drop := l.meet(point{request, at})
			met[point{request, at}] += fmt.Sprint(work, hit, drop, " ")
		}
	}
	return met
}

func TestLane_TheSeedDecidesWhatARequestMeetsInAnyOrderOfArrival(t *testing.T) {
	t.Parallel()
	for _, f := range flows {
		s := f.Default
		s.Flow, s.Seed = f.Name, 7
		var order []int
		for n := range f.requests * s.Size {
			order = append(order, n)
		}
		first := meetings(t, s, order)
		slices.Reverse(order)
		s.Strategies = s.Strategies[1:]
		second := meetings(t, s, order)
		for p, met := range first {
			if second[p] != met {
				t.Errorf("%s: request %d, %s: %s in one lane, %s in the other", f.Name, p.request, p.at, met, second[p])
			}
		}
		s.Seed++
		if other := meetings(t, s, order); other[point{0, read}] == first[point{0, read}] {
			t.Errorf("%s: seeds 7 and 8 are one", f.Name)
		}
	}
}

func TestLane_OneRequestOfTheFirstHalfMeetsAKill(t *testing.T) {
	t.Parallel()
	for seed := range uint32(20) {
		l := newLane(Settings{Seed: seed, Flow: "inventory", Size: 10, Fault: Kill}, "redis-only")
		for p := range l.hits {
			if len(l.hits) != 1 || p.request >= 5 || p.at != read {
				t.Errorf("seed %d: %v", seed, l.hits)
			}
		}
	}
}

// A request that is sent again must not meet the same fault forever.
func TestLane_TwoRequestsMeetAPauseOnceEach(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 9; size++ {
		l := newLane(Settings{Seed: uint32(size), Flow: "transfer", Size: size}, "etcd-fenced")
		hits, worked := 0, time.Duration(0)
		for range 3 {
			for request := range size {
				for _, at := range l.flow.moments {
					work, hit, _ := l.meet(point{request, at})
					if worked += work; hit {
						hits++
					}
				}
			}
		}
		if hits != min(size, hitsMax) || worked == 0 {
			t.Errorf("%d pauses of %d requests, which worked for %v", hits, size, worked)
		}
	}
}
