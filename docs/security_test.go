// SPDX-License-Identifier: MIT

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName = regexp.MustCompile("`(Test[A-Z]\\w*)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
)

// Each point of docs/security.md names tests, and all of them exist.
func TestSecurity_EachPointNamesTestsThatExist(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	tests := allTests(t)
	points := 0
	for line := range strings.Lines(string(page)) {
		if !regexp.MustCompile(`^\| \d+\. `).MatchString(line) {
			continue
		}
		points++
		names := testName.FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("no test: %.60s", line)
		}
		for _, name := range names {
			if !tests[name[1]] {
				t.Errorf("%s does not exist: %.60s", name[1], line)
			}
		}
	}
	if points != 16 || tests["TestNoSuchThing"] {
		t.Errorf("%d points, want 16", points)
	}
}

// allTests returns the names of all tests of the repository.
func allTests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(repo, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil || len(names) == 0 {
		t.Fatalf("%d tests: %v", len(names), err)
	}
	return names
}
