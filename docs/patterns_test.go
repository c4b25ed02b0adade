// SPDX-License-Identifier: MIT

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	patternHeading = regexp.MustCompile(`^### (?:([A-E]\d+)\. )?(.*)$`)
	codeLink       = regexp.MustCompile(`\[([\w.]+)\]\(([^)#]+)\)`)
	benchmark      = regexp.MustCompile(`\bBenchmark\w+`)
	cost           = regexp.MustCompile(`Costs: \*\*([\d.]+) µs\*\*`)
	costsRow       = regexp.MustCompile(`(?m)^\| \[[^\]]+\]\(#([^)]+)\)[^|]*\| \*\*([\d.]+) µs\*\* \|`)
	costsLine      = regexp.MustCompile(`(?m)^(.+?) +([\d.]+) µs$`)
)

// patterns is the number of patterns of each part of the page.
var patterns = map[string]int{"A": 10, "B": 5, "C": 18, "D": 4, "E": 6}

// pattern is a pattern of the page.
type pattern struct {
	id, title string // id: "A1", or ""
	text      string
}

func patternBlocks(page string) (all []pattern) {
	for line := range strings.Lines(page) {
		if m := patternHeading.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			all = append(all, pattern{id: m[1], title: m[2]})
		} else if n := len(all); n > 0 && !strings.HasPrefix(line, "#") {
			all[n-1].text += line
		} else if strings.HasPrefix(line, "## Uses") {
			break
		}
	}
	return all
}

func TestPatterns_EachIsOnThePageAndLinksToItsCodeAndItsTest(t *testing.T) {
	page, err := os.ReadFile("patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, b := range patternBlocks(string(page)) {
		found[b.id] = true
		for _, wrong := range patternLinks(b) {
			t.Errorf("docs/patterns.md, %s %s: %s", b.id, b.title, wrong)
		}
	}
	for part, n := range patterns {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprint(part, i); !found[id] {
				t.Errorf("%s is not on the page", id)
			}
		}
	}
}

// patternLinks returns the mistakes in the links of a pattern: a link whose text is a name must lead to the file
// that declares it, the code and the test must each have a link or a command, and what costs something must
// have a benchmark in a folder to which the pattern links.
func patternLinks(b pattern) (wrong []string) {
	code, test, _ := strings.Cut(b.text, "Test: ")
	test, _, _ = strings.Cut(test, "\n")
	for name, links := range map[string]string{"code": code, "test": test} {
		if !strings.Contains(links, "](") && !strings.Contains(links, "`make ") {
			wrong = append(wrong, "no link to its "+name)
		}
	}
	benchmarks := ""
	for _, link := range codeLink.FindAllStringSubmatch(b.text, -1) {
		name, file := link[1], link[2]
		benchmarks += tests(filepath.Dir(filepath.FromSlash(file)))
		if strings.Contains(name, ".") || strings.HasPrefix(name, "loadtest") || strings.HasSuffix(file, ".md") {
			continue // the name of a file, which TestPages checks
		}
		text, err := os.ReadFile(filepath.FromSlash(file))
		declares := regexp.MustCompile(`(?m)^(func|func \(\w+ \*?\w+\)|type|const|var) ` + name + `\b`)
		if err != nil || !declares.Match(text) {
			wrong = append(wrong, fmt.Sprintf("%s does not declare %s", file, name))
		}
	}
	_, costs, costly := strings.Cut(b.text, "Costs: ")
	costs, _, _ = strings.Cut(costs, "\n")
	named := benchmark.FindAllString(costs, -1)
	if costly && !strings.HasPrefix(costs, "none") && named == nil && !cost.MatchString(b.text) && !strings.Contains(costs, "`make ") {
		wrong = append(wrong, "no benchmark measures: "+costs)
	}
	for _, name := range named {
		if !strings.Contains(benchmarks, "\nfunc "+name+"(") {
			wrong = append(wrong, "no folder of the pattern has "+name)
		}
	}
	return wrong
}

// The times of the page are those that make costs has printed, and each of those is on the page.
func TestPatterns_TheTimesAreOfOneRun(t *testing.T) {
	page, err := os.ReadFile("patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	printed, err := os.ReadFile("costs.txt")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^date: \d{4}-\d\d-\d\d$`).Match(printed) || !strings.Contains(string(printed), "\ncpu: ") {
		t.Error("docs/costs.txt has no date, or no machine")
	}
	times := map[string]string{}
	for _, m := range costsLine.FindAllStringSubmatch(string(printed), -1) {
		times[m[1]] = m[2]
	}
	if len(times) < 20 {
		t.Fatalf("docs/costs.txt has %d times", len(times))
	}
	for _, b := range patternBlocks(string(page)) {
		at, want := cost.FindStringSubmatch(b.text), times[b.id]+times[b.title]
		delete(times, b.id)
		delete(times, b.title)
		if got := append(at, "", "")[1]; got != want {
			t.Errorf("%s %s: %q µs, docs/costs.txt has %q", b.id, b.title, got, want)
		}
	}
	for name := range times {
		t.Errorf("docs/patterns.md has no pattern %q", name)
	}
	compared := 0
	for _, m := range costsRow.FindAllStringSubmatch(string(page), -1) {
		for _, b := range patternBlocks(string(page)) {
			heading := b.title
			if b.id != "" {
				heading = b.id + ". " + b.title
			}
			if anchors("### " + heading)[0] != m[1] {
				continue
			}
			if at := cost.FindStringSubmatch(b.text); at == nil || at[1] != m[2] {
				t.Errorf("the table has %s µs for %s, its block %v", m[2], heading, at)
			}
			compared++
		}
	}
	if compared < 5 {
		t.Errorf("%d times of the table were compared", compared)
	}
}

// words are those by which people look for a pattern: those of the articles, in both languages.
var words = []string{
	"SETNX", "NX EX", "watchdog", "refresh", "fencing token", "Redisson", "Redlock", "Lua", "pg_try_advisory_xact_lock", "hashtext",
	"regclass", "lock_timeout", "GET_LOCK", "flock", "mutex table", "NOWAIT", "findOneAndUpdate", "lockId", "WithTransaction", "WriteConflict",
	"SELECT … FOR UPDATE", "WATCH", "MULTI", "EXEC", "semaphore", "fair lock", "read-write lock", "stampede", "double click", "batch",
	"lease", "zxid", "revision", "idempotency key", "alerts",
	"二重ロック", "フェンシングトークン", "ウォッチドッグ", "楽観ロック", "アドバイザリーロック", "在庫", "送金", "二重送金", "過剰販売", "SKIP LOCKED", "セマフォ", "バッチ", "ファイルロック",
}

// Each word is in a row of the first table, which links to a pattern or a page.
func TestPatterns_EachWordOfTheArticlesLeadsToItsPattern(t *testing.T) {
	page, err := os.ReadFile("patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	_, index, _ := strings.Cut(string(page), "\n| word |")
	index, _, _ = strings.Cut(index, "\n\n")
	for _, word := range words {
		leads := false
		for row := range strings.Lines(index) {
			leads = leads || strings.Contains(row, word) && strings.Contains(row, "](")
		}
		if !leads {
			t.Errorf("no row of the index has %s", word)
		}
	}
}

// tests returns the text of all tests of a folder.
func tests(folder string) (all string) {
	files, _ := filepath.Glob(filepath.Join(folder, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil {
			all += string(text)
		}
	}
	return all
}

func TestPatternLinks_NoticesNamesThatAreNotThere(t *testing.T) {
	const good = "- Code: [XactLock](../locking/pglock/advisory.go). Test: [TestHash_NeverChanges](../locking/pglock/xact_test.go).\n- Safe: correct. Costs: 1; `BenchmarkUncontended`.\n"
	if wrong := patternLinks(pattern{text: good}); wrong != nil {
		t.Error(wrong)
	}
	for _, bad := range []string{
		strings.Replace(good, "XactLock]", "XactLocks]", 1),
		strings.Replace(good, "xact_test.go", "store_test.go", 1),
		strings.Replace(good, "[XactLock](../locking/pglock/advisory.go)", "xact.go", 1),
		strings.Replace(good, "; `BenchmarkUncontended`", "", 1),
		strings.Replace(good, "Uncontended", "TwoKeys", 1), // of another folder
	} {
		if wrong := patternLinks(pattern{text: bad}); len(wrong) != 1 {
			t.Errorf("%s: %q", bad, wrong)
		}
	}
}

// The table of mutations in locktest has each check that a store's mutants must fail.
func TestMutations_TheTableHasEachCheck(t *testing.T) {
	table, err := os.ReadFile("../locking/locktest/doc.go")
	files, globErr := filepath.Glob("../locking/*/mutants_test.go")
	if err != nil || globErr != nil || len(files) < 8 {
		t.Fatalf("%q, %v, %v: this tests nothing", files, err, globErr)
	}
	check := regexp.MustCompile(`"([A-Z]\w+/[A-Z]\w+)"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range check.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(string(table), m[1]) {
				t.Errorf("locking/locktest/doc.go does not have %s of %s", m[1], file)
			}
		}
	}
}
