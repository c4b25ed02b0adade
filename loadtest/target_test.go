package loadtest

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	first, err := template.shots(load)
	if err != nil {
		t.Fatal(err)
	}
	second, err := template.shots(load)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) != 110 || first[0].Intent != first[1].Intent || first[0].Replica == first[1].Replica {
		t.Errorf("%d shots, want 100 and 10 twins at other replicas", len(first))
	}
	for i := range first {
		a, b := first[i].Intent, second[i].Intent
		_, bodyA, _ := strings.Cut(string(a.Body), " ")
		_, bodyB, _ := strings.Cut(string(b.Body), " ")
		if a.Path != b.Path || bodyA != bodyB || a.Key == b.Key || !strings.HasPrefix(string(a.Body), a.Key) {
			t.Fatalf("shot %d: %s %s and %s %s", i, a.Path, a.Body, b.Path, b.Body)
		}
	}
	if _, err := (&Template{Body: "{{.Nothing}}"}).shots(load); err == nil {
		t.Error("a template that cannot be filled in is no error")
	}
}

// foreign is somebody else's service: it knows no problem types, takes each key
// once, and keeps what it did in memory. Honest means that all it says is true.
type foreign struct {
	mu     sync.Mutex
	honest bool
	seen   map[string]int
	twins  sync.WaitGroup // the first two requests, which wait for each other: they overlap
	came   atomic.Int64
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if f.came.Add(1) <= 2 {
		f.twins.Done()
		f.twins.Wait()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := req.Header.Get("X-Request-Id")
	f.seen[key]++
	if !f.honest && f.seen[key] > 1 {
		_, _ = w.Write([]byte("another answer"))
		return
	}
	_, _ = w.Write([]byte("done"))
}

func (f *foreign) target(t *testing.T, sql string) *Target {
	t.Helper()
	f.seen = map[string]int{}
	f.twins.Add(2)
	r := newRange(t, 2, f.ServeHTTP)
	return &Target{
		Name: "foreign", Bases: r.bases, KeyHeader: "X-Request-Id", Header: http.Header{}, Classify: ClassifyByStatus(),
		Request: &Template{Method: "POST", Path: "/"}, Load: Load{Rate: 200, Duration: 200 * time.Millisecond, Seed: 1},
		Checks: ParseChecks(sql), Database: postgresURL(t),
		Say: t.Logf, Tick: func(string) {},
	}
}

func TestTarget_IsJudgedByItsOwnersSQLOverWhatClientsWereTold(t *testing.T) {
	for _, c := range []struct {
		name    string
		honest  bool
		sql     string
		verdict Verdict
		broken  string
	}{
		{"all well", true, "-- name: none lost\nSELECT 1 FROM proof_answers WHERE outcome <> 'ok' OR status <> 200 OR body <> 'done';", Safe, ""},
		{"a query that finds something", true, "-- name: S9\nSELECT key, 'lost' FROM proof_answers LIMIT 3;", Violated, "S9"},
		{"two answers to one key", false, "SELECT 1 WHERE false;", Violated, "I-ONCE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := (&foreign{honest: c.honest}).target(t, c.sql).Run(t.Context())
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

func TestTarget_QueriesThatCannotRunAreAnErrorBeforeTheFirstShot(t *testing.T) {
	for name, sql := range map[string]string{
		"none":        "-- to be written\n",
		"a typo":      "SELECT 1 WHERE false;\nSELEKT 1;",
		"no table":    "SELECT 1 FROM no_such_table;",
		"no column":   "SELECT answer FROM proof_answers;",
		"a cut quote": "SELECT 'all;",
	} {
		shop := &foreign{honest: true}
		if report, err := shop.target(t, sql).Run(t.Context()); err == nil {
			t.Errorf("%s: no error, but %v", name, report.AsExpected)
		}
		if n := shop.came.Load(); n != 0 {
			t.Errorf("%s: %d requests were sent", name, n)
		}
	}
}
