// SPDX-License-Identifier: MIT

package docs

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	original    = "README.md"
	translation = "docs/README.ja.md"
)

func TestTranslation_HasTheCommandsLinksAndFiguresOfTheREADME(t *testing.T) {
	english, err := os.ReadFile(repo + "/" + original)
	if err != nil {
		t.Fatal(err)
	}
	japanese, err := os.ReadFile(repo + "/" + translation)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range translated(string(english), string(japanese)) {
		t.Errorf("%s: %s", translation, wrong)
	}
}

var (
	figure  = regexp.MustCompile(`\d[\d,.-]*\d`)
	section = regexp.MustCompile(`(?m)^## `)
)

// translated returns what differs between the README and its translation: code and links, whose order may differ
// within a sentence, blocks of code, the number of sections and of rows, and figures that are missing.
func translated(english, japanese string) (wrong []string) {
	for what, of := range map[string]func(string, string) []string{
		"code":     func(_, page string) []string { return spans(page) },
		"links":    linksFrom,
		"blocks":   func(_, page string) []string { return blocks(page) },
		"sections": func(_, page string) []string { return section.FindAllString(page, -1) },
		"rows":     func(_, page string) []string { return regexp.MustCompile(`(?m)^\|`).FindAllString(page, -1) },
	} {
		a, b := of(path.Dir(original), english), of(path.Dir(translation), japanese)
		if len(a) == 0 || !slices.Equal(a, b) {
			wrong = append(wrong, fmt.Sprintf("%s: %q, want %q", what, without(b, a), without(a, b)))
		}
	}
	had := figure.FindAllString(japanese, -1)
	for _, number := range figure.FindAllString(english, -1) {
		if !slices.Contains(had, number) {
			wrong = append(wrong, "figure: no "+number)
		}
	}
	return wrong
}

// linksFrom returns the links of a page in a folder, except those between the README and its translation.
func linksFrom(folder, page string) (list []string) {
	for _, m := range link.FindAllStringSubmatch(page, -1) {
		if to := path.Join(folder, m[1]); to != original && to != translation {
			list = append(list, to)
		}
	}
	return sorted(list)
}

// blocks returns the lines within fences.
func blocks(page string) []string {
	within, _ := fenced(page)
	return within
}

// spans returns the code between backticks, outside of fences.
func spans(page string) (code []string) {
	_, outside := fenced(page)
	for _, line := range outside {
		code = append(code, inline(line)...)
	}
	return sorted(code)
}

// fenced returns the lines within fences, and the others.
func fenced(page string) (within, outside []string) {
	inside := false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case inside:
			within = append(within, line)
		default:
			outside = append(outside, line)
		}
	}
	return within, outside
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}

// without returns the elements of a that are not in b, or all of a if their numbers differ.
func without(a, b []string) []string {
	less := slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
	if len(less) == 0 && len(a) != len(b) {
		return a
	}
	return less
}

// The negative control.
func TestTranslated_NoticesADifference(t *testing.T) {
	const (
		english  = "## A\nRun `make demo`, see [x](docs/x.md). It took 43 s.\n\n| a |\n\n```\nok 12\n```\n"
		japanese = "## あ\n43 秒。[x](x.md) と `make demo`。\n\n| あ |\n\n```\nok 12\n```\n"
	)
	if wrong := translated(english, japanese); len(wrong) != 0 {
		t.Errorf("%q", wrong)
	}
	for old, changed := range map[string]string{
		"make demo": "make test", "docs/x.md": "docs/y.md", "43 s": "44 s", "ok 12": "ok", "| a |": "| a |\n| b |", "## A": "## A\n## B",
	} {
		if wrong := translated(strings.Replace(english, old, changed, 1), japanese); len(wrong) == 0 {
			t.Errorf("%q for %q: not noticed", changed, old)
		}
	}
}
