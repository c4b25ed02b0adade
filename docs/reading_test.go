package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// bound is how much there may be to read.
type bound struct{ files, lines int }

// readings are the pages with a reading list, and the bounds of the lists.
var readings = map[string]bound{
	"inventory.md": {17, 1600}, // a purchase with redis+row
	"transfer.md":  {20, 2200}, // a transfer with etcd-fenced
	"copying.md":   {10, 1000}, // a lock in Redis, with Do
}

// The test cannot detect a file that a list omits: the text below each list names those files.
func TestPages_WhatToReadIsShort(t *testing.T) {
	for page, most := range readings {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		has, err := reading(string(text), most)
		if err != nil {
			t.Errorf("docs/%s: %v", page, err)
		}
		t.Logf("docs/%s: %d files, %d lines to read", page, has.files, has.lines)
	}
}

// reading measures the reading list of a page, and compares it with its bound.
func reading(page string, most bound) (has bound, err error) {
	for _, file := range toRead(page) {
		code, err := os.ReadFile(file) // a link is relative to the page, and so is the test
		if err != nil {
			return has, err
		}
		has.files++
		has.lines += strings.Count(string(code), "\n")
	}
	if has.files == 0 || has.files > most.files || has.lines > most.lines {
		return has, fmt.Errorf("%d files and %d lines to read, want %d and %d at most", has.files, has.lines, most.files, most.lines)
	}
	return has, nil
}

// toRead returns the files to which the rows of tables "| read | for |" link.
func toRead(page string) (files []string) {
	inTable := false
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "| read |"):
			inTable = true
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable:
			row, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), " | ")
			for _, m := range link.FindAllStringSubmatch(row, -1) {
				files = append(files, m[1])
			}
		}
	}
	return files
}

// The negative control: each of these lists exceeds its bound, or is empty.
func TestReading_ReportsWhatIsTooMuch(t *testing.T) {
	page := "| take | for |\n|---|---|\n| [x](x.go) | - |\n\n| read | for |\n|---|---|\n| [a](docs_test.go), [b](words_test.go) | see [c](c.go) |\n\n[e](e.go)\n"
	if has, err := reading(page, bound{2, 1000}); err != nil || has.files != 2 {
		t.Errorf("%+v, %v, want two files", has, err)
	}
	for name, c := range map[string]struct {
		page string
		most bound
	}{
		"files":   {page, bound{1, 1000}},
		"lines":   {page, bound{2, 100}},
		"nothing": {strings.ReplaceAll(page, "| read |", "| take |"), bound{2, 1000}},
		"no file": {strings.ReplaceAll(page, "words_test.go", "no.go"), bound{2, 1000}},
	} {
		if has, err := reading(c.page, c.most); err == nil {
			t.Errorf("%s: %+v passes", name, has)
		}
	}
}
