// SPDX-License-Identifier: MIT

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// A table on GitHub is at most this wide, in pixels; a wider one has to be scrolled.
const pageWidth = 846

var (
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	markup   = strings.NewReplacer("<br>", " ", "`", "", "**", "", "\\|", "|")
)

// The words of a cell do not break: the longest ones of all columns must fit beside each other.
func TestPages_NoTableIsWiderThanThePage(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 15 {
		t.Fatalf("%q, %v", pages, err)
	}
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tables(string(text)) {
			if width := table.width(); width > pageWidth {
				t.Errorf("docs/%s:%d: a table of at least %d px", page, table.line, width)
			}
		}
	}
}

type table struct {
	line int
	rows [][]string
}

func tables(page string) (all []table) {
	inTable, inCode := false, false
	for n, line := range strings.Split(page, "\n") {
		inCode = inCode != strings.HasPrefix(line, "```")
		is := !inCode && strings.HasPrefix(line, "|")
		if is && !inTable {
			all = append(all, table{line: n + 1})
		}
		if inTable = is; is {
			cells := strings.Split(strings.ReplaceAll(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "|"), "|"), "\\|", "¦"), "|")
			last := &all[len(all)-1]
			last.rows = append(last.rows, cells)
		}
	}
	return all
}

// width is the least width of a table, in pixels.
func (t table) width() (px int) {
	longest := map[int]int{}
	for _, row := range t.rows {
		for n, cell := range row {
			for _, word := range strings.Fields(markup.Replace(linkText.ReplaceAllString(cell, "$1"))) {
				longest[n] = max(longest[n], wordWidth(word))
			}
		}
	}
	const padding = 27 // and the border of a cell
	for _, w := range longest {
		px += w + padding
	}
	return px
}

// wordWidth is about the width of a word in a font of 16 px. A word breaks after a hyphen, and between Japanese characters.
func wordWidth(word string) (px int) {
	part := 0.0
	for _, r := range word {
		switch {
		case r > 0x2e80:
			px, part = max(px, int(part), 16), 0
			continue
		case unicode.IsUpper(r):
			part += 10
		default:
			part += 8
		}
		if r == '-' {
			px, part = max(px, int(part)), 0
		}
	}
	return max(px, int(part))
}

func TestWidth_NoticesAWideTable(t *testing.T) {
	wide := "| a | b |\n|---|---|\n| " + strings.Repeat("x", 60) + " | [" + strings.Repeat("y", 60) + "](z) |\n"
	if all := tables(wide); len(all) != 1 || all[0].width() <= pageWidth {
		t.Errorf("%+v fits", all)
	}
	if all := tables(strings.Replace(wide, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "xxxx xxxxxx", 1)); all[0].width() > pageWidth {
		t.Errorf("%+v does not fit", all)
	}
}
