package docs

import (
	"fmt"
	"io/fs"
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
		if rest, ok := strings.CutPrefix(line, "Not here yet: "); ok {
			for _, id := range absent(rest) {
				found[id] = true
			}
		}
	}
	all := benchmarks(t)
	for _, name := range benchmark.FindAllString(string(page), -1) {
		if !all[name] {
			t.Errorf("docs/patterns.md: there is no %s", name)
		}
	}
	for part, n := range patterns {
		for i := 1; i <= n; i++ {
			if id := fmt.Sprint(part, i); !found[id] {
				t.Errorf("%s is neither on the page nor among those that are not here yet", id)
			}
		}
	}
}

// patternLinks returns the mistakes in the links of a row: a link whose text is a name must lead to the file
// that declares it, and the last two columns must each have a link or a command.
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
	for _, link := range codeLink.FindAllStringSubmatch(row, -1) {
		name, file := link[1], link[2]
		if strings.Contains(name, ".") || strings.HasPrefix(name, "loadtest") {
			continue // the name of a file, which TestPages checks
		}
		text, err := os.ReadFile(filepath.FromSlash(file))
		declares := regexp.MustCompile(`(?m)^(func|func \(\w+ \*?\w+\)|type) ` + name + `\b`)
		if err != nil || !declares.Match(text) {
			wrong = append(wrong, fmt.Sprintf("%s does not declare %s", file, name))
		}
	}
	return wrong
}

// benchmarks returns the names of all benchmarks.
func benchmarks(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(repo, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, name := range regexp.MustCompile(`(?m)^func (Benchmark\w+)`).FindAllStringSubmatch(string(text), -1) {
			names[name[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// absent returns the patterns of a list such as "A5, C14 to C17, D3".
func absent(list string) (ids []string) {
	one := regexp.MustCompile(`([A-E])(\d+)(?: to [A-E](\d+))?`)
	for _, m := range one.FindAllStringSubmatch(list, -1) {
		var from, to int
		fmt.Sscan(m[2], &from)
		if to = from; m[3] != "" {
			fmt.Sscan(m[3], &to)
		}
		for i := from; i <= to; i++ {
			ids = append(ids, fmt.Sprint(m[1], i))
		}
	}
	return ids
}

func TestPatternLinks_NoticesNamesThatAreNotThere(t *testing.T) {
	good := "| A1 | a | b | c | d | e | f | [XactLock](../locking/pglock/xact.go) | [TestHash_NeverChanges](../locking/pglock/xact_test.go) |"
	if wrong := patternLinks(good); wrong != nil {
		t.Error(wrong)
	}
	for _, bad := range []string{
		strings.Replace(good, "XactLock]", "XactLocks]", 1),
		strings.Replace(good, "xact_test.go", "store_test.go", 1),
		strings.Replace(good, "[XactLock](../locking/pglock/xact.go)", "xact.go", 1),
	} {
		if wrong := patternLinks(bad); len(wrong) != 1 {
			t.Errorf("%s: %q", bad, wrong)
		}
	}
}
