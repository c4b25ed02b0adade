// SPDX-License-Identifier: MIT

package target

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seller is a service under proof. It keeps its sales in memory, and its errors
// can be switched on.
type seller struct {
	mu       sync.Mutex
	stock    int
	answers  map[string]string // by key
	came     int
	orders   int
	met      sync.WaitGroup // makes the first two requests overlap
	oversell bool
	few      bool // each address sells one unit, and refuses the rest
	sold     map[string]bool
	forgets  bool // it ignores the key
	fresh    bool // it stores no refusal, and shows the time in it
	note     bool // a repetition has a field and a status of its own
	object   bool // the id of an answer is that of the product
	conflict bool // a repetition of a success is answered 409 duplicate
	liar     bool // so is every first request
	open     bool // any client may do what only an administrator may
	status   int  // of each answer; 0: the right one
}

func (s *seller) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	if s.came++; s.came <= 2 {
		s.mu.Unlock()
		s.met.Done()
		s.met.Wait()
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	if s.status != 0 {
		w.WriteHeader(s.status)
		return
	}
	if req.URL.Path == "/admin" && !s.open {
		w.WriteHeader(http.StatusForbidden)
		return
	}
	key := req.Header.Get("Idempotency-Key")
	answer, known := s.answers[key]
	if s.conflict && (s.liar || known) && !strings.Contains(answer, "sold-out") {
		w.WriteHeader(http.StatusConflict)
		_, _ = w.Write([]byte(`{"error": "duplicate"}`))
		return
	}
	if s.note && known && !strings.Contains(answer, "sold-out") {
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprintf(w, `{"note": "replayed", %s`, answer[1:])
		return
	}
	if !known || s.forgets {
		answer = s.sell(req)
		if s.answers[key] = answer; s.fresh && strings.Contains(answer, "sold-out") {
			delete(s.answers, key)
			answer = fmt.Sprintf(`{"error": "sold-out", "at": %d}`, time.Now().UnixNano())
		}
	}
	if strings.Contains(answer, "sold-out") {
		w.WriteHeader(http.StatusConflict)
	}
	_, _ = w.Write([]byte(answer))
}

func (s *seller) sell(req *http.Request) string {
	var order struct{ Quantity int }
	_ = json.NewDecoder(req.Body).Decode(&order)
	if order.Quantity > s.stock && !s.oversell || s.few && s.sold[req.Host] {
		return `{"error": "sold-out"}`
	}
	s.stock -= order.Quantity
	s.sold[req.Host] = true
	s.orders++
	if s.object {
		return fmt.Sprintf(`{"id": "coffee", "left": %d}`, s.stock)
	}
	return fmt.Sprintf(`{"id": %d}`, s.orders)
}

// sellerFile requests more than the supply. %s: the services; tests append more.
const sellerFile = `services: [%s]
rate: 400
duration: 250ms
decide_within: 300ms
supply: {coffee: 40}
answers: {field: error, rejected: [409 sold-out]}
requests:
  - {name: buy, weight: 10, path: /orders, takes: 1, body: '{"quantity": {{.Units}}}'}
  - {name: grant, path: /admin, expect: [403]}
`

func (s *seller) prove(t *testing.T, more string) (loadtest.Result, error) {
	t.Helper()
	for range 3 { // a machine that is too busy to send the load in time proves nothing
		result, err := s.proveOnce(t, more)
		if err != nil || !strings.Contains(strings.Join(result.Inconclusive, ""), "the generator lagged") {
			return result, err
		}
	}
	return s.proveOnce(t, more)
}

func (s *seller) proveOnce(t *testing.T, more string) (loadtest.Result, error) {
	t.Helper()
	return s.proveFile(t, sellerFile, more)
}

// proveFile proves the service with a file; more is appended.
func (s *seller) proveFile(t *testing.T, file, more string) (loadtest.Result, error) {
	t.Helper()
	s.stock, s.came, s.orders, s.answers, s.sold = 40, 0, 0, map[string]string{}, map[string]bool{}
	s.met.Add(2)
	f := parsed(t, fmt.Sprintf(file, strings.Join(testbed.Serve(t, 2, s.ServeHTTP), ", "))+more)
	f.dir = t.TempDir()
	report, err := f.Run(t.Context(), t.Logf, func(string) {})
	if err != nil {
		return loadtest.Result{}, err
	}
	return report.Scenarios[0], nil
}

func TestRun_ARightServicePassesAndAWrongOneFailsByName(t *testing.T) {
	for _, c := range []struct {
		name    string
		service *seller
		verdict loadtest.Verdict
		broken  string
		hint    string
	}{
		{"right", &seller{}, loadtest.Safe, "", ""},
		{"it oversells", &seller{oversell: true}, loadtest.Violated, "I-SUPPLY", ""},
		{"each address sells one and refuses the rest", &seller{few: true}, loadtest.Violated, "I-SOLD", ""},
		{"it does not know the key", &seller{forgets: true}, loadtest.Violated, "I-ONCE", "Set idempotency_header"},
		{"a refusal has another time", &seller{fresh: true}, loadtest.Safe, "", ""},
		{"a repetition has a note, and another status", &seller{note: true}, loadtest.Safe, "", ""},
		{"any client is an administrator", &seller{open: true}, loadtest.Violated, "I-DENY", ""},
		{"it answers 500", &seller{status: 500}, loadtest.Violated, "I-LIMIT", "the log of the service may say why"},
		{"it refuses everything", &seller{status: 401}, loadtest.Violated, "I-DENY", "are the headers of the clients right"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := c.service.prove(t, "")
			if err != nil {
				t.Fatal(err)
			}
			if result.Verdict != c.verdict || result.AsExpected != (c.verdict == loadtest.Safe) || c.broken != "" && result.Violations[c.broken] == 0 {
				t.Errorf("%s, %v, inconclusive %q; want %s, broken %q", result.Verdict, result.Violations, result.Inconclusive, c.verdict, c.broken)
			}
			if text := strings.Join(result.Hints, "\n"); !strings.Contains(text, c.hint) || (c.hint == "") != (text == "") {
				t.Errorf("hints %q, want %q", text, c.hint)
			}
		})
	}
}

func TestRun_TheFileSaysWhichFieldIsTheIDAndWhatADuplicateIs(t *testing.T) {
	answers := func(more string) string {
		return strings.Replace(sellerFile, "rejected:", more+", rejected:", 1)
	}
	for _, c := range []struct {
		name    string
		service *seller
		file    string
		broken  string
	}{
		{"the note is the id", &seller{note: true}, answers("id: note"), "I-ONCE"},
		{"neither has such a field", &seller{note: true}, answers("id: number"), "I-ONCE"},
		{"the id is that of the product, and each repetition sells again", &seller{object: true, forgets: true, oversell: true}, sellerFile, "I-ONCE"},
		{"a duplicate after a success", &seller{conflict: true}, answers("duplicate: [409 duplicate]"), ""},
		{"a duplicate, and nothing before", &seller{conflict: true, liar: true}, answers("duplicate: [409 duplicate]"), "I-ONCE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := c.service.proveFile(t, c.file, "")
			if err != nil || (result.Verdict == loadtest.Safe) != (c.broken == "") || c.broken != "" && result.Violations[c.broken] == 0 {
				t.Errorf("%s, %v, inconclusive %q, %v; want broken %q", result.Verdict, result.Violations, result.Inconclusive, err, c.broken)
			}
			if c.broken == "" {
				return
			}
			if found := strings.Join(result.Findings[c.broken].IDs, "; "); !strings.Contains(found, "200 {") && !strings.Contains(found, "answered as a duplicate") && !strings.Contains(found, "does not name the effect") {
				t.Errorf("%s: the answers are not shown", found)
			}
		})
	}
}

func TestRun_AFewRequestsThatHardlyMeetShowNothing(t *testing.T) {
	result, err := (&seller{}).proveFile(t, strings.Replace(sellerFile, "rate: 400", "rate: 40", 1), "")
	reasons := strings.Join(result.Inconclusive, "; ")
	if err != nil || result.Verdict != loadtest.Inconclusive || !strings.Contains(reasons, "pairs of requests with different keys overlapped") {
		t.Errorf("%s, %q, %v", result.Verdict, reasons, err)
	}
}

func TestRun_TheErrorOfACertificateIsShown(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	report, err := parsed(t, fmt.Sprintf(sellerFile, server.URL)).Run(t.Context(), t.Logf, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if hints := strings.Join(report.Scenarios[0].Hints, "; "); !strings.Contains(hints, "x509: certificate signed by unknown authority") {
		t.Errorf("hints %q", hints)
	}
}

func TestRun_AnUnlistedRefusalLeavesItsKeysUndecidedAndIsHintedAt(t *testing.T) {
	result, err := (&seller{}).prove(t, "idempotency_header: Idempotency-Key\n")
	if err != nil || result.Verdict != loadtest.Safe {
		t.Fatal(result.Verdict, err)
	}
	s := &seller{answers: map[string]string{}, sold: map[string]bool{}, stock: 40}
	s.met.Add(2)
	text := strings.Replace(fmt.Sprintf(sellerFile, strings.Join(testbed.Serve(t, 2, s.ServeHTTP), ", ")), ", rejected: [409 sold-out]", "", 1)
	report, err := parsed(t, text).Run(t.Context(), t.Logf, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	result = report.Scenarios[0]
	hints := strings.Join(result.Hints, "\n")
	if result.Violations["I-LIVE"] == 0 || !strings.Contains(hints, "keys ended in 409 sold-out: is that a refusal? Set answers: {rejected: [409 sold-out]}") {
		t.Errorf("%v, hints %q", result.Violations, hints)
	}
}

func TestRun_ACommandFindsViolationsByItsLinesOrItsStatus(t *testing.T) {
	for _, c := range []struct{ name, command, broken string }{
		{"no line", `[sh, -c, 'test "$(wc -l < "$PROVE_ANSWERS")" -ge 100']`, ""},
		{"two lines", `[sh, -c, 'echo coffee; echo tea']`, "coffee"},
		{"a status", `[sh, -c, 'echo no ledger >&2; exit 3']`, "exit status 3: no ledger"},
		{"it finds what clients were told", `[sh, -c, 'grep -o "\"outcome\":\"rejected\",\"status\":409" "$PROVE_ANSWERS" | head -1']`, "rejected"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := (&seller{}).prove(t, "audits:\n  - name: ledger\n    command: "+c.command+"\n")
			if err != nil {
				t.Fatal(err)
			}
			found := strings.Join(result.Findings["ledger"].IDs, "\n")
			if (c.broken == "") != (found == "") || !strings.Contains(found, c.broken) || (result.Verdict == loadtest.Safe) != (c.broken == "") {
				t.Errorf("%s: %q, want %q", result.Verdict, found, c.broken)
			}
		})
	}
}

func TestRun_ASettingThatCannotWorkIsAnErrorBeforeTheFirstRequest(t *testing.T) {
	for name, c := range map[string]struct{ more, says string }{
		"no such command":     {"audits: [{name: a, command: [no-such-command]}]\n", "line 10"},
		"no such script":      {"audits: [{name: a, command: [./no-such-script]}]\n", "line 10"},
		"no such file":        {"database: postgres://127.0.0.1:1/x\naudits: [{file: no.sql}]\n", "no.sql"},
		"no database":         {"database: postgres://me:hunter2@127.0.0.1:1/x\naudits: [{name: a, sql: SELECT 1}]\n", "database"},
		"another database":    {"database: mysql://me:hunter2@127.0.0.1/x\naudits: [{name: a, sql: SELECT 1}]\n", "use an audit with a command"},
		"not a database":      {"database: 'postgres://me:hunter2@127.0.0.1:x/y'\naudits: [{name: a, sql: SELECT 1}]\n", "not the URL"},
		"a service that died": {"start_within: 1ms\n", "does the service run"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &seller{}
			services := strings.Join(testbed.Serve(t, 2, s.ServeHTTP), ", ")
			if name == "a service that died" {
				services = "http://127.0.0.1:1"
			}
			f := parsed(t, fmt.Sprintf(sellerFile, services)+c.more)
			f.dir = t.TempDir()
			_, err := f.Run(t.Context(), t.Logf, func(string) {})
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v; want %q", err, c.says)
			}
			if s.came != 0 {
				t.Errorf("%d requests were sent", s.came)
			}
		})
	}
}

// sqlProve proves a right service with audits in SQL, on a database that other tests use too.
func sqlProve(t *testing.T, audits string) (loadtest.Result, error) {
	t.Helper()
	return (&seller{}).prove(t, "database: "+testbed.Env(t, "SHOP_POSTGRES_URL")+"\naudits:\n"+audits)
}

func TestRun_QueriesJoinWhatClientsWereTold(t *testing.T) {
	for _, c := range []struct {
		name, sql, broken string
		found             int64
	}{
		{"nothing", "SELECT key FROM proof_answers WHERE outcome = 'ok' AND status <> 200 OR body = '' AND request <> 'grant'", "", 0},
		{"rows of any columns", "SELECT key, 'lost', 1 FROM proof_answers WHERE outcome = 'ok' AND request = 'buy' LIMIT 3", "S9", 3},
		{"what the templates drew", "SELECT sum(units) FROM proof_answers WHERE outcome = 'ok' AND object = 'coffee' HAVING sum(units) <> 40", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			result, err := sqlProve(t, "  - {name: S9, sql: \""+c.sql+"\"}\n")
			if err != nil || result.Violations["S9"] != c.found || (result.Verdict == loadtest.Safe) != (c.broken == "") {
				t.Errorf("%s, %v, %q, %v", result.Verdict, result.Violations, result.Inconclusive, err)
			}
		})
	}
}

func TestColumn_AnAnswerOfAnyBytesIsText(t *testing.T) {
	if got := column("a\x00b\xffc"); got != "a\uFFFDb\uFFFDc" {
		t.Errorf("%q", got)
	}
}

func TestRun_AQueryThatCannotRunIsAnErrorBeforeTheFirstRequest(t *testing.T) {
	for name, sql := range map[string]string{
		"a typo": "SELEKT 1", "no table": "SELECT 1 FROM no_such_table", "no column": "SELECT answer FROM proof_answers",
	} {
		s := &seller{}
		_, err := s.prove(t, "database: "+testbed.Env(t, "SHOP_POSTGRES_URL")+"\naudits: [{name: a, sql: "+sql+"}]\n")
		if err == nil || !strings.Contains(err.Error(), "line 11") || s.came != 0 {
			t.Errorf("%s: %v after %d requests", name, err, s.came)
		}
	}
}

func TestRun_AnAuditOverEmptyTablesShowsNothing(t *testing.T) {
	conn := testbed.Connect(t, testbed.Env(t, "SHOP_POSTGRES_URL"))
	schema := fmt.Sprintf("target_%d", os.Getpid())
	testbed.Exec(t, conn, "CREATE SCHEMA "+schema+"; CREATE TABLE "+schema+".orders (id int); CREATE TABLE "+schema+".products (stock int)")
	t.Cleanup(func() { testbed.Exec(t, conn, "DROP SCHEMA "+schema+" CASCADE") })
	audit := "  - {name: lost, sql: 'SELECT * FROM " + schema + ".orders o JOIN " + schema + ".products ON stock = o.id WHERE stock < 0'%s}\n"
	result, err := sqlProve(t, fmt.Sprintf(audit, ""))
	if err != nil || result.Verdict != loadtest.Inconclusive || !strings.Contains(strings.Join(result.Inconclusive, ""), "is this the database of the service?") {
		t.Errorf("%s, %q, %v", result.Verdict, result.Inconclusive, err)
	}
	if result, err = sqlProve(t, fmt.Sprintf(audit, ", may_be_empty: true")); err != nil || result.Verdict != loadtest.Safe {
		t.Errorf("may be empty: %s, %q, %v", result.Verdict, result.Inconclusive, err)
	}
	testbed.Exec(t, conn, "INSERT INTO "+schema+".products VALUES (1)")
	if result, err = sqlProve(t, fmt.Sprintf(audit, "")); err != nil || result.Verdict != loadtest.Safe {
		t.Errorf("one table is filled: %s, %q, %v", result.Verdict, result.Inconclusive, err)
	}
}

func TestRun_AFileOfQueriesAndASupplyInSQL(t *testing.T) {
	s := &seller{stock: 40, answers: map[string]string{}, sold: map[string]bool{}}
	s.met.Add(2)
	text := strings.Replace(fmt.Sprintf(sellerFile, strings.Join(testbed.Serve(t, 2, s.ServeHTTP), ", ")), "supply: {coffee: 40}", "supply: SELECT 'coffee', 40", 1)
	text = strings.Replace(text, "takes: 1", "objects: [coffee], takes: 1", 1)
	f := parsed(t, text+"audits: [{file: audit.sql}]\ndatabase: "+testbed.Env(t, "SHOP_POSTGRES_URL")+"\n")
	f.dir = t.TempDir()
	queries := "-- name: S7\nSELECT ';' AS a, key FROM proof_answers -- not the end\nWHERE false;\n\nSELECT key\nFROM proof_answers LIMIT 2;\n-- nothing follows\n"
	if err := os.WriteFile(filepath.Join(f.dir, "audit.sql"), []byte(queries), 0o600); err != nil {
		t.Fatal(err)
	}
	report, err := f.Run(t.Context(), t.Logf, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	got := report.Scenarios[0].Violations
	if n, checked := got["S7"]; !checked || n != 0 || got["query 2"] != 2 || got["I-SOLD"] != 0 || got["I-SUPPLY"] != 0 {
		t.Errorf("%v", got)
	}
}
