// SPDX-License-Identifier: MIT

package target

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shop/loadtest"
	"shop/locking/invariant"
)

// checked is a line of the manual's table: a name, a code, and a meaning.
var checked = regexp.MustCompile(`(?m)^\| (\S+) \((I-[A-Z]+)\) \| (.*) \|$`)

func TestManual_UsesTheWordsOfTheReport(t *testing.T) {
	text, err := os.ReadFile("../../docs/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	own := (&File{Supply: parsed(t, small).Supply}).invariants()
	said := map[string]bool{}
	for _, line := range checked.FindAllStringSubmatch(string(text), -1) {
		said[line[2]] = true
		list := slices.Concat(own, loadtest.Invariants)
		i := slices.IndexFunc(list, func(v invariant.Invariant) bool { return v.Code == line[2] })
		if i < 0 || list[i].Name != line[1] || !strings.HasPrefix(line[3], list[i].Means) {
			t.Errorf("docs/ci.md: %s: want the words of %+v", line[0], list)
		}
	}
	for _, v := range own {
		if !said[v.Code] {
			t.Errorf("docs/ci.md has no line for %s (%s)", v.Name, v.Code)
		}
	}
}
