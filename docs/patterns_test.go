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
	patternRow = regexp.MustCompile(`^\| ([A-E]\d+)? *\| `)
	codeLink   = regexp.MustCompile(`\[([\w.]+)\]\(([^)]+)\)`)
	benchmark  = regexp.MustCompile(`\bBenchmark\w+`)
)

// patterns is the number of patterns of each part of the page.
var patterns = map[string]int{"A": 10, "B": 5, "C": 18, "D": 4, "E": 5}

func TestPatterns_EachIsOnThePageAndLinksToItsCodeAndItsTest(t *testing.T) {
	page, err := os.ReadFile("patterns.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for at, line := range strings.Split(string(page), "\n") {
		if m := patternRow.FindStringSubmatch(line); m != nil && strings.Count(line, "|") == 10 {
			found[m[1]] = true
			for _, wrong := range patternLinks(line) {
				t.Errorf("docs/patterns.md:%d: %s", at+1, wrong)
			}
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

// patternLinks returns the mistakes in the links of a row: a link whose text is a name must lead to the file
// that declares it, the last two columns must each have a link or a command, and what costs something must
// have a benchmark in a folder to which the row links.
func patternLinks(row string) (wrong []string) {
	columns := strings.Split(row, "|")
	if strings.TrimSpace(columns[2]) == "pattern" {
		return nil
	}
	for _, column := range columns[8:10] {
		if !strings.Contains(column, "](") && !strings.Contains(column, "`make ") {
			wrong = append(wrong, "no link to the code, or none to the test: "+column)
		}
	}
	benchmarks := ""
	for _, link := range codeLink.FindAllStringSubmatch(row, -1) {
		name, file := link[1], link[2]
		benchmarks += tests(filepath.Dir(filepath.FromSlash(file)))
		if strings.Contains(name, ".") || strings.HasPrefix(name, "loadtest") {
			continue // the name of a file, which TestPages checks
		}
		text, err := os.ReadFile(filepath.FromSlash(file))
		declares := regexp.MustCompile(`(?m)^(func|func \(\w+ \*?\w+\)|type) ` + name + `\b`)
		if err != nil || !declares.Match(text) {
			wrong = append(wrong, fmt.Sprintf("%s does not declare %s", file, name))
		}
	}
	costs, named := strings.TrimSpace(columns[7]), benchmark.FindAllString(columns[7], -1)
	isFree := costs == "" || strings.HasPrefix(costs, "none") || strings.HasPrefix(strings.TrimSpace(columns[6]), "never")
	if !isFree && named == nil && !strings.Contains(costs, "`make ") {
		wrong = append(wrong, "no benchmark measures: "+costs)
	}
	for _, name := range named {
		if !strings.Contains(benchmarks, "\nfunc "+name+"(") {
			wrong = append(wrong, "no folder of the row has "+name)
		}
	}
	return wrong
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
	good := "| A1 | a | b | c | d | e | 1; `BenchmarkUncontended` | [XactLock](../locking/pglock/advisory.go) | [TestHash_NeverChanges](../locking/pglock/xact_test.go) |"
	if wrong := patternLinks(good); wrong != nil {
		t.Error(wrong)
	}
	for _, bad := range []string{
		strings.Replace(good, "XactLock]", "XactLocks]", 1),
		strings.Replace(good, "xact_test.go", "store_test.go", 1),
		strings.Replace(good, "[XactLock](../locking/pglock/advisory.go)", "xact.go", 1),
		strings.Replace(good, "; `BenchmarkUncontended`", "", 1),
		strings.Replace(good, "Uncontended", "TwoKeys", 1), // of another folder
	} {
		if wrong := patternLinks(bad); len(wrong) != 1 {
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
