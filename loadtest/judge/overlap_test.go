// SPDX-License-Identifier: MIT

package judge

import (
	"testing"
	"time"

	"shop/loadtest/traffic"
)

func attempt(replica int, start, end time.Duration) traffic.Attempt {
	return traffic.Attempt{Replica: replica, Start: start, End: end, Sends: 1}
}

func asking(sku string, attempts ...traffic.Attempt) traffic.Record {
	return traffic.Record{Intent: traffic.Intent{Contends: []string{sku}}, Attempts: attempts}
}

func TestOverlaps_CountsPairsOfDifferentKeysThatMetOnDifferentReplicas(t *testing.T) {
	never := attempt(1, 0, 100)
	never.Sends = 0
	both := traffic.Record{Intent: traffic.Intent{Contends: []string{"a", "b"}}, Attempts: []traffic.Attempt{attempt(1, 0, 100)}}
	for _, c := range []struct {
		name     string
		replicas int
		records  []traffic.Record
		want     int64
	}{
		{"one after the other", 3, []traffic.Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(1, 10, 20))}, 0},
		{"at once on two replicas", 3, []traffic.Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(1, 9, 20))}, 1},
		{"at once on one replica", 3, []traffic.Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(0, 5, 20))}, 0},
		{"at once behind one address", 1, []traffic.Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(0, 5, 20))}, 1},
		{"at once over two products", 3, []traffic.Record{asking("a", attempt(0, 0, 10)), asking("b", attempt(1, 0, 20))}, 0},
		{"one that never arrived", 3, []traffic.Record{asking("a", attempt(0, 0, 10)), asking("a", never)}, 0},
		{"a long one, met by two short ones", 3, []traffic.Record{asking("a", attempt(0, 0, 100)), asking("a", attempt(1, 5, 10)), asking("a", attempt(1, 50, 60))}, 2},
		{"an order for both, met over each", 3, []traffic.Record{both, asking("a", attempt(0, 1, 2)), asking("b", attempt(2, 1, 2))}, 2},
		{"two orders for both are one pair", 3, []traffic.Record{both, {Intent: traffic.Intent{Contends: []string{"b", "a"}}, Attempts: []traffic.Attempt{attempt(0, 1, 2)}}}, 1},
		{"duplicates of one key", 3, []traffic.Record{asking("a", attempt(0, 0, 10), attempt(1, 0, 10))}, 0},
		{"a read and a write", 3, []traffic.Record{asking("a", attempt(0, 0, 10)), {Intent: traffic.Intent{Contends: []string{"a"}, Reads: true}, Attempts: []traffic.Attempt{attempt(1, 0, 10)}}}, 0},
		{"three at once on three replicas", 3, []traffic.Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(1, 0, 10)), asking("a", attempt(2, 0, 10))}, 3},
	} {
		if got := Overlaps(c.records, c.replicas); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
