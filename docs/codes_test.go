// SPDX-License-Identifier: MIT

package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	codeInGo    = regexp.MustCompile(`Code:\s+"([A-Z0-9-]+)",\s+Name:\s+"([a-z-]+)"`)
	codeInAudit = regexp.MustCompile(`(?m)^(?:--|//) invariant: ([A-Z0-9-]+) ([a-z-]+):`) // of a database
	codeWord    = regexp.MustCompile(`[A-Z]+[0-9]?(?:-[A-Z]+)?`)
)

// A page of a lesson gives the name of an invariant where its code first occurs.
func TestPages_NameAnInvariantAtItsFirstCode(t *testing.T) {
	names := invariants(t)
	for _, page := range []string{"inventory.md", "transfer.md", "wallet.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range bareCodes(string(text), names) {
			t.Errorf("docs/%s: %s", page, wrong)
		}
	}
}

// bareCodes returns the codes whose first occurrence on a page, outside of blocks, is not behind their name.
func bareCodes(page string, names map[string]string) (wrong []string) {
	_, outside := fenced(page)
	text := strings.Join(strings.Fields(strings.Join(outside, "")), " ")
	met := map[string]bool{}
	for _, at := range codeWord.FindAllStringIndex(text, -1) {
		code := text[at[0]:at[1]]
		name, is := names[code]
		if is && !met[code] && !strings.HasSuffix(text[:at[0]], name+" (") {
			wrong = append(wrong, fmt.Sprintf("want %s (%s) at its first use", name, code))
		}
		met[code] = true
	}
	return wrong
}

// invariants returns the name of each code, from the tables of the proof.
func invariants(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	err := filepath.WalkDir(repo, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !slices.Contains([]string{".go", ".sql", ".js"}, filepath.Ext(path)) || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, of := range []*regexp.Regexp{codeInGo, codeInAudit} {
			for _, m := range of.FindAllStringSubmatch(string(text), -1) {
				names[m[1]] = m[2]
			}
		}
		return err
	})
	if err != nil || names["S1"] != "stock-balance" || names["T1"] != "money-conserved" || names["M1"] != "money-conserved" || names["W-SIDE"] != "side-effects" {
		t.Fatalf("%q, %v: this test must be fixed", names, err)
	}
	return names
}

// The negative control.
func TestBareCodes_NoticesThem(t *testing.T) {
	names := map[string]string{"T1": "money-conserved", "I-BODY": "true-answers"}
	for page, want := range map[string]int{
		"money-conserved (T1), T1, T1-DURING and true-answers\n(I-BODY)": 0, "```\nT1\n```\n": 0,
		"T1, then money-conserved (T1)": 1, "true-answers (T1), (I-BODY)": 2,
	} {
		if wrong := bareCodes(page, names); len(wrong) != want {
			t.Errorf("%s: %q, want %d", page, wrong, want)
		}
	}
}
