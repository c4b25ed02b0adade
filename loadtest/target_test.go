package loadtest

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"

	"github.com/google/go-cmp/cmp"
)

func TestParseChecks_OneForEachStatementNamedByTheCommentBefore(t *testing.T) {
	checks := ParseChecks(`
-- All about stock.
-- name: S1
SELECT sku FROM products
WHERE stock < 0; -- not the end of a line, and so no end
;

SELECT ';' AS text, 1
FROM orders;
-- nothing follows
`)
	want := []string{"S1", "query 2"}
	var got []string
	for _, c := range checks {
		got = append(got, c.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if checks := ParseChecks("-- only words\n"); len(checks) != 0 {
		t.Errorf("%d checks in a comment", len(checks))
	}
}

func TestTemplate_SameSeedSameRequestsUnderNewKeys(t *testing.T) {
	template := Template{Method: "POST", Path: "/{{.N}}", Body: `{{.Key}} {{pick "a" "b"}} {{int 1 3}}`}
	load := Load{Rate: 100, Duration: time.Second, Seed: 7, Replicas: 2}
	first, err := template.schedule(load)
	if err != nil {
		t.Fatal(err)
	}
	second, err := template.schedule(load)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 110 || first[0].Intent != first[1].Intent || first[0].Replica == first[1].Replica {
		t.Errorf("%d requests, want 100 and 10 duplicates at other replicas", len(first))
	}
	for i := range first {
		a, b := first[i].Intent, second[i].Intent
		_, bodyA, _ := strings.Cut(string(a.Body), " ")
		_, bodyB, _ := strings.Cut(string(b.Body), " ")
		if a.Path != b.Path || bodyA != bodyB || a.Key == b.Key || !strings.HasPrefix(string(a.Body), a.Key) {
			t.Fatalf("request %d: %s %s and %s %s", i, a.Path, a.Body, b.Path, b.Body)
		}
	}
	if _, err := (&Template{Body: "{{.Nothing}}"}).schedule(load); err == nil {
		t.Error("a template that cannot be filled in is no error")
	}
}

func TestTemplate_ADayOfLoadIsSpreadOverTheDay(t *testing.T) {
	load := Load{Rate: 2, Duration: 24 * time.Hour, Seed: 1, Replicas: 2}
	schedule, err := (&Template{Method: "POST", Path: "/"}).schedule(load)
	if err != nil {
		t.Fatal(err)
	}
	for i, request := range schedule {
		if request.At < 0 || i > 0 && request.At < schedule[i-1].At {
			t.Fatalf("request %d comes at %v", i, request.At)
		}
	}
	if last := schedule[len(schedule)-1].At; last > load.Duration || last < load.Duration-time.Second {
		t.Errorf("the last request comes at %v", last)
	}
}

// foreign is a service that is not ours: it knows no problem types, takes each key
// once, and keeps what it did in memory. Honest means that all it says is true.
type foreign struct {
	mu      sync.Mutex
	correct bool
	seen    map[string]int
	both    sync.WaitGroup // the first two requests, which wait for each other: they overlap
	came    atomic.Int64
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if f.came.Add(1) <= 2 {
		f.both.Done()
		f.both.Wait()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := req.Header.Get("X-Request-Id")
	f.seen[key]++
	if !f.correct && f.seen[key] > 1 {
		_, _ = w.Write([]byte("another answer"))
		return
	}
	_, _ = w.Write([]byte("done"))
}

func (f *foreign) target(t *testing.T, sql string) *Target {
	t.Helper()
	f.seen = map[string]int{}
	f.both.Add(2)
	return &Target{
		Name: "foreign", Bases: testbed.Serve(t, 2, f.ServeHTTP), KeyHeader: "X-Request-Id", Header: http.Header{}, Classify: ClassifyByStatus(),
		Request: &Template{Method: "POST", Path: "/"}, Load: Load{Rate: 200, Duration: 200 * time.Millisecond, Seed: 1},
		Checks: ParseChecks(sql), Database: testbed.Env(t, "SHOP_POSTGRES_URL"),
		Say: t.Logf, Tick: func(string) {},
	}
}

func TestTarget_IsJudgedByItsOwnersSQLOverTheRepliesOfClients(t *testing.T) {
	for _, c := range []struct {
		name    string
		correct bool
		sql     string
		verdict Verdict
		broken  string
	}{
		{"all well", true, "-- name: none lost\nSELECT 1 FROM proof_answers WHERE outcome <> 'ok' OR status <> 200 OR body <> 'done';", Safe, ""},
		{"a query that finds something", true, "-- name: S9\nSELECT key, 'lost' FROM proof_answers LIMIT 3;", Violated, "S9"},
		{"two answers to one key", false, "SELECT 1 WHERE false;", Violated, "I-ONCE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := (&foreign{correct: c.correct}).target(t, c.sql).Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			result := report.Scenarios[0]
			if result.Verdict != c.verdict || report.AsExpected != (c.verdict == Safe) || c.broken != "" && result.Violations[c.broken] == 0 {
				t.Errorf("%s, %v; want %s, broken %q", result.Verdict, result.Violations, c.verdict, c.broken)
			}
			if result.Requests != 40 || result.OK != 40 {
				t.Errorf("%d requests, %d ok; want 40 and 40", result.Requests, result.OK)
			}
		})
	}
}

func TestTarget_QueriesThatCannotRunAreAnErrorBeforeTheFirstRequest(t *testing.T) {
	for name, sql := range map[string]string{
		"none":        "-- to be written\n",
		"a typo":      "SELECT 1 WHERE false;\nSELEKT 1;",
		"no table":    "SELECT 1 FROM no_such_table;",
		"no column":   "SELECT answer FROM proof_answers;",
		"a cut quote": "SELECT 'all;",
	} {
		shop := &foreign{correct: true}
		if report, err := shop.target(t, sql).Run(t.Context()); err == nil {
			t.Errorf("%s: no error, but %v", name, report.AsExpected)
		}
		if n := shop.came.Load(); n != 0 {
			t.Errorf("%s: %d requests were sent", name, n)
		}
	}
}
