package loadtest

import (
	"testing"
	"time"
)

func attempt(replica int, start, end time.Duration) Attempt {
	return Attempt{Replica: replica, Start: start, End: end, Sends: 1}
}

func asking(sku string, attempts ...Attempt) Record {
	return Record{Intent: Intent{Contends: []string{sku}}, Attempts: attempts}
}

func TestOverlaps_CountsAttemptsThatMetAnotherReplicaOverOneProduct(t *testing.T) {
	never := attempt(1, 0, 100)
	never.Sends = 0
	both := Record{Intent: Intent{Contends: []string{"a", "b"}}, Attempts: []Attempt{attempt(1, 0, 100)}}
	for _, c := range []struct {
		name     string
		replicas int
		records  []Record
		want     int64
	}{
		{"one after the other", 3, []Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(1, 10, 20))}, 0},
		{"at once on two replicas", 3, []Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(1, 9, 20))}, 2},
		{"at once on one replica", 3, []Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(0, 5, 20))}, 0},
		{"at once behind one address", 1, []Record{asking("a", attempt(0, 0, 10)), asking("a", attempt(0, 5, 20))}, 2},
		{"at once over two products", 3, []Record{asking("a", attempt(0, 0, 10)), asking("b", attempt(1, 0, 20))}, 0},
		{"one that never arrived", 3, []Record{asking("a", attempt(0, 0, 10)), asking("a", never)}, 0},
		{"a long one, met by two short ones", 3, []Record{asking("a", attempt(0, 0, 100)), asking("a", attempt(1, 5, 10)), asking("a", attempt(1, 50, 60))}, 3},
		{"an order for both, met twice, counts once", 3, []Record{both, asking("a", attempt(0, 1, 2)), asking("b", attempt(2, 1, 2))}, 3},
		{"duplicates of one key", 3, []Record{asking("a", attempt(0, 0, 10), attempt(1, 0, 10))}, 2},
	} {
		if got := Overlaps(c.records, c.replicas); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
