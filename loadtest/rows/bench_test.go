// SPDX-License-Identifier: MIT

package bench

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// samples have the same rate and wait in each.
func samples(n int, wait time.Duration, each ...int) (list []Sample) {
	for range n {
		s := Sample{Over: time.Second, Each: each}
		for _, of := range each {
			for range of {
				s.Waits = append(s.Waits, wait)
			}
		}
		list = append(list, s)
	}
	return list
}

func TestFill_ComparesEachFigureWithItsTargets(t *testing.T) {
	r := Row{Case: "product", Clients: 32, Processes: 1, Baseline: "row"}
	r.Fill(samples(3, 2*time.Millisecond, 1500), samples(3, 10*time.Millisecond, 100))
	if got, want := r.String(), "ratio ≥ 15: met p99/base ≤ 0.1: missed"; !strings.HasSuffix(got, want) || r.Ratio != 15 {
		t.Errorf("%q, want %q", got, want)
	}
	r.Fill(samples(3, time.Millisecond, 1499), samples(3, 10*time.Millisecond, 100))
	if got, want := r.String(), "ratio ≥ 15: missed p99/base ≤ 0.1: met"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	fair := Row{Case: "lock", Clients: 64, Processes: 4}
	fair.Fill(samples(1, time.Millisecond, 50, 100), samples(1, time.Millisecond, 75, 75))
	if got, want := fair.String(), "ratio ≥ 1: met min/max ≥ 0.5: met"; !strings.HasSuffix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, other := range []Row{
		{Case: "product", Clients: 32, Processes: 1, Baseline: "redis+row"},
		{Case: "product", Clients: 32, Processes: 1, Baseline: "row", WorkMS: 1},
		{Case: "product", Clients: 32, Processes: 3, Baseline: "row"},
	} {
		if other.Fill(samples(1, 1, 1), samples(1, 1, 1)); len(other.Targets) != 0 {
			t.Errorf("%s against %s has targets: %v", other.Name(), other.Baseline, other.Targets)
		}
	}
}

func TestWanted_FiguresExist(t *testing.T) {
	for _, w := range wanted {
		if _, err := path.Match(w.row, ""); err != nil || figures[w.figure] == nil || w.sign != atLeast && w.sign != atMost {
			t.Errorf("%+v: %v", w, err)
		}
	}
}

func TestGrowth_FindsARateThatFalls(t *testing.T) {
	point := func(clients int, rate float64) Row {
		return Row{Case: "product", Clients: clients, Processes: 1, PerSecond: rate}
	}
	other := Row{Case: "many", Clients: 32, Processes: 1, PerSecond: 7}
	rising := Growth([]Row{point(32, 90), point(1, 100), other, {Case: "product", Clients: 64, Processes: 3, PerSecond: 1}})
	if len(rising) != 1 || rising[0] != "product as clients grow: 1: 100/s, 32: 90/s; least of the best with fewer 0.90 ≥ 0.85: met" {
		t.Errorf("%q", rising)
	}
	falling := Growth([]Row{point(1, 100), point(32, 200), point(256, 160)})
	if len(falling) != 1 || !strings.HasSuffix(falling[0], "0.80 ≥ 0.85: missed") {
		t.Errorf("%q", falling)
	}
}

func TestWrite_ReplacesTheRowsOfTheSameMeasurement(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report", "bench.json")
	for _, rows := range [][]Row{
		{{Case: "product", Clients: 1}, {Case: "lock", Clients: 1}},
		{{Case: "lock", Clients: 1, Ratio: 2}, {Case: "lock", Clients: 2}},
	} {
		if err := Write(file, rows); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	var rows []Row
	if err != nil || json.Unmarshal(text, &rows) != nil || len(rows) != 3 || rows[0].Case != "product" || rows[1].Ratio != 2 {
		t.Errorf("%v: %s", err, text)
	}
	if err := os.WriteFile(file, []byte("no rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Write(file, nil); err == nil {
		t.Error("a file without rows was replaced")
	}
}
