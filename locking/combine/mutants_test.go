// SPDX-License-Identifier: MIT

package combine

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestSchedules must pass on the package as it is, and fail with each of these changes to it.
func TestSchedules_NoticeMutants(t *testing.T) {
	if testing.Short() { // locktest.Slow, which a copy of this package does without
		t.Skip("a test of tests")
	}
	if out, err := exec.CommandContext(t.Context(), "nice", "go", "test", "-vet=off", "-count=1", "-v", "-run=^TestSchedules$", ".", "-args", "-combine.schedules=10000").CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestSchedules ") {
		t.Fatalf("go test: %v\n%s", err, out)
	}
	slots := make(chan struct{}, 2)
	for name, m := range map[string]struct{ file, from, to string }{
		"answers shifted by one": {"serve.go", "r.answer(results[i])", "r.answer(results[(i+1)%len(results)])"},
		"answers swapped after one leaves": {
			"combine.go", "	if q.empty() && !q.running", "	if len(q.waiting) > 1 {\n		q.waiting[0].done, q.waiting[1].done = q.waiting[1].done, q.waiting[0].done\n	}\n	if q.empty() && !q.running",
		},
		"the lease is kept after all":      {"serve.go", "if err := t.apply(ctx, l, batch); err != nil {", "if err := t.apply(ctx, l, batch); err != nil && !undecided(err) {"},
		"a request is served twice":        {"serve.go", "	return batch, nil\n", "	if len(batch) == 2 {\n		return batch, list\n	}\n	return batch, nil\n"},
		"answered before the commit":       {"serve.go", "	results, err := t.call(", "	batch[0].answer(Result[A]{})\n	results, err := t.call("},
		"a client leaves a running batch":  {"combine.go", "	if r.runs {\n		return false\n	}\n", ""},
		"the last comes first":             {"serve.go", "batch = append(batch, r)", "batch = append([]*request[Q, A]{r}, batch...)"},
		"unknown is called failed":         {"serve.go", "r.answer(Result[A]{Err: err})", "r.answer(Result[A]{Err: errors.New(err.Error())})"},
		"unknown is forgotten":             {"serve.go", "	if r.last != nil &&", "	if false && r.last != nil &&"},
		"a panic is called a failure":      {"combine.go", `fmt.Errorf("%w: combine: Apply panicked", locking.ErrOutcomeUnknown)`, `errors.New("combine: Apply panicked")`},
		"only the first of equals is told": {"serve.go", "		same.done <- result\n", "		_ = same\n"},
		"a goroutine for each request":     {"combine.go", "	r.ticket = q.joined\n", "	if q.joined > 0 {\n		c.work.Go(func() { c.serve(name, q) })\n	}\n	r.ticket = q.joined\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			out := mutated(t, m.file, m.from, m.to)
			_, why, noticed := strings.Cut(out, "schedules_test.go")
			if !noticed || !strings.Contains(out, "--- FAIL: TestSchedules") {
				t.Errorf("TestSchedules did not notice:\n%s", out)
			}
			t.Logf("%.200s", why)
		})
	}
}

// mutated runs TestSchedules with one change, and returns what it printed.
func mutated(t *testing.T, file, from, to string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || strings.Count(string(text), from) != 1 {
		t.Fatalf("%s: %q occurs %d times, want 1 (%v)", file, from, strings.Count(string(text), from), err)
	}
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, file), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{changed: []byte(strings.Replace(string(text), from, to, 1)), overlay: list} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "nice", "go", "test", "-vet=off", "-count=1", "-timeout=1m", "-overlay", overlay, "-run=^TestSchedules$", ".", "-args", "-combine.schedules=500")
	out, err := cmd.CombinedOutput()
	if err == nil || strings.Contains(string(out), "[build failed]") {
		t.Fatalf("go test: %v\n%s", err, out)
	}
	return string(out)
}
