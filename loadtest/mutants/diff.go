// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// fileDiff is what a diff changes in one file.
type fileDiff struct {
	path  string // below the root of the tree
	hunks []hunk
}

// hunk is a block of lines before and after the change.
type hunk struct {
	line   int // where the block begins, according to the diff
	before []string
	after  []string
}

// parseDiff reads a unified diff. A diff can change files, but not create, move or delete them.
func parseDiff(text string) (files []fileDiff, err error) {
	for n, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case strings.HasPrefix(line, "diff "), strings.HasPrefix(line, "index "), strings.HasPrefix(line, "--- "), strings.HasPrefix(line, `\ `):
		case strings.HasPrefix(line, "+++ "):
			path, ok := strings.CutPrefix(line, "+++ b/")
			if !ok {
				return nil, fmt.Errorf("line %d of the diff: want +++ b/FILE: %s", n+1, line)
			}
			files = append(files, fileDiff{path: path})
		case len(files) == 0:
			return nil, fmt.Errorf("line %d of the diff names no file: %s", n+1, line)
		default:
			if err := files[len(files)-1].add(line); err != nil {
				return nil, fmt.Errorf("line %d of the diff: %w", n+1, err)
			}
		}
	}
	return files, complete(files)
}

// complete checks that each file has hunks, and each hunk a change.
func complete(files []fileDiff) error {
	if len(files) == 0 {
		return errors.New("no diff: want --- a/FILE and +++ b/FILE")
	}
	for _, f := range files {
		if len(f.hunks) == 0 {
			return fmt.Errorf("%s: no hunk", f.path)
		}
		for _, h := range f.hunks {
			if slices.Equal(h.before, h.after) {
				return fmt.Errorf("%s: the hunk of line %d changes nothing", f.path, h.line)
			}
		}
	}
	return nil
}

// add reads one line of a hunk, or its head: @@ -12,3 +12,4 @@.
func (f *fileDiff) add(line string) error {
	if head, is := strings.CutPrefix(line, "@@ -"); is {
		from, _, _ := strings.Cut(head, " ")
		from, _, _ = strings.Cut(from, ",")
		at, err := strconv.Atoi(from)
		if err != nil {
			return fmt.Errorf("want @@ -LINE,COUNT +LINE,COUNT @@: %s", line)
		}
		f.hunks = append(f.hunks, hunk{line: at})
		return nil
	}
	if len(f.hunks) == 0 {
		return fmt.Errorf("not within a hunk: %s", line)
	}
	h := &f.hunks[len(f.hunks)-1]
	if line == "" {
		line = " " // an editor has removed the trailing space of an empty context line
	}
	kind, text := line[0], line[1:]
	if !strings.ContainsRune(" -+", rune(kind)) {
		return fmt.Errorf("neither context nor a change: %s", line)
	}
	if kind != '+' {
		h.before = append(h.before, text)
	}
	if kind != '-' {
		h.after = append(h.after, text)
	}
	return nil
}

// apply changes the text of a file. It finds a hunk by its lines, wherever they have moved. If the
// lines occur several times, it takes the place nearest to the line number of the diff.
func (f fileDiff) apply(text string) (string, error) {
	lines, from, moved := strings.Split(text, "\n"), 0, 0
	var out []string
	for _, h := range f.hunks {
		want := h.line - 1 + moved
		at := nearest(lines, h.before, from, want)
		if at < 0 {
			return "", fmt.Errorf("%s: the hunk of line %d does not apply, missing: %s", f.path, h.line, firstMissing(lines[from:], h.before))
		}
		moved += at - want
		out = append(append(out, lines[from:at]...), h.after...)
		from = at + len(h.before)
	}
	return strings.Join(append(out, lines[from:]...), "\n"), nil
}

// nearest returns the index of block in lines[from:] that is nearest to want, or -1.
func nearest(lines, block []string, from, want int) int {
	best := -1
	for at := from; at+len(block) <= len(lines); at++ {
		if slices.Equal(lines[at:at+len(block)], block) && (best < 0 || abs(at-want) < abs(best-want)) {
			best = at
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }

// firstMissing returns the first line of block that is not in lines.
func firstMissing(lines, block []string) string {
	for _, want := range block {
		if !slices.Contains(lines, want) {
			return strings.TrimSpace(want)
		}
	}
	return strings.TrimSpace(block[0]) + " (each line exists, but not as one block)"
}
