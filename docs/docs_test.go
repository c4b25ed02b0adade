// SPDX-License-Identifier: MIT

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repo is the root of the repository.
const repo = ".."

func TestPages_QuoteAndLinkToWhatExists(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d pages, %v: this tests nothing", len(pages), err)
	}
	known := commands(t)
	for _, page := range append(pages, "llms.txt", readme) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range check(filepath.Dir(page), string(text), known) {
			t.Errorf("docs/%s:%s", page, wrong)
		}
	}
}

// readme is the only page outside of this folder.
const readme = repo + "/README.md"

// check returns the mistakes of a page in a folder, with their lines.
func check(folder, page string, known map[string]bool) (wrong []string) {
	lines, own := strings.Split(page, "\n"), anchors(page)
	note := func(at int, format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf("%d: %s", at+1, fmt.Sprintf(format, args...)))
	}
	for at := 0; at < len(lines); at++ {
		code, isFence := strings.CutPrefix(lines[at], "```")
		if !isFence {
			for _, problem := range slices.Concat(links(folder, lines[at], own), unknown(inline(lines[at]), known)) {
				note(at, "%s", problem)
			}
			continue
		}
		begin := at
		for at++; at < len(lines) && lines[at] != "```"; at++ {
		}
		if at == len(lines) {
			note(begin, "this block has no end")
			return wrong
		}
		inside := lines[begin+1 : at]
		switch code {
		case "go", "sql", "yaml":
			if err := quoted(code, source(lines[:begin]), inside); err != nil {
				note(begin, "%v", err)
			}
		case "mermaid":
			for _, problem := range mermaid(inside) {
				note(begin, "%s", problem)
			}
		case "", "sh":
			if err := typed(lines[:begin]); code == "sh" && err != nil {
				note(begin, "%v", err)
			}
			for i, line := range inside {
				if code == "" && yamlKey.MatchString(line) {
					note(begin+1+i, "this looks like YAML: begin the block with ```yaml, so that it is compared with its source")
				}
				for _, problem := range unknown([]string{line}, known) {
					note(begin+1+i, "%s", problem)
				}
			}
		}
	}
	return wrong
}

// typed checks that the commands of a block are run by the test that the comment above it names, which reads the
// block, or that the comment says why they are not run. Their names and flags are checked in both cases.
func typed(before []string) error {
	for i := len(before) - 1; i >= 0; i-- {
		if notRun.MatchString(before[i]) {
			return nil
		}
		if before[i] != "" {
			break
		}
	}
	file := source(before)
	if !strings.HasSuffix(file, "_test.go") {
		return fmt.Errorf("commands that no test runs: put <!-- path/of/the_test.go --> above them, or <!-- not run: reason -->")
	}
	text, err := os.ReadFile(filepath.Join(repo, file))
	if err == nil && !strings.Contains(string(text), "typedBlocks(") {
		err = fmt.Errorf("%s does not run the commands of pages", file)
	}
	return err
}

var yamlKey = regexp.MustCompile(`^\w+:$`)

var notRun = regexp.MustCompile(`^<!-- not run: .{10,} -->$`)

var sourceComment = regexp.MustCompile(`^<!-- (\S+) -->$`)

// source returns the file that the comment in the last non-empty line names.
func source(before []string) string {
	for i := len(before) - 1; i >= 0; i-- {
		if before[i] == "" {
			continue
		}
		if m := sourceComment.FindStringSubmatch(before[i]); m != nil {
			return m[1]
		}
		break
	}
	return ""
}

// quoted checks that a snippet occurs in its source, apart from its indentation. The last
// line of SQL may be cut at the end of a Go string.
func quoted(language, file string, snippet []string) error {
	if file == "" {
		return fmt.Errorf("a snippet without source: put <!-- path/of/the/file --> above it")
	}
	text, err := os.ReadFile(filepath.Join(repo, file))
	if err != nil {
		return fmt.Errorf("the snippet's source: %w", err)
	}
	want, all := dedent(snippet), strings.Split(string(text), "\n")
	if language == "sql" {
		for i := range all {
			all[i], _, _ = strings.Cut(all[i], "`")
		}
	}
	if strings.Join(want, "") == "" {
		return fmt.Errorf("an empty snippet")
	}
	for i := 0; i+len(want) <= len(all); i++ {
		if slices.Equal(dedent(all[i:i+len(want)]), want) {
			return nil
		}
	}
	return fmt.Errorf("this is not in %s: %s", file, strings.TrimSpace(firstLost(want, all)))
}

// firstLost returns the first line that does not occur in the source, or else the first line.
func firstLost(want, all []string) string {
	for _, w := range want {
		if !slices.ContainsFunc(all, func(l string) bool { return strings.TrimSpace(l) == strings.TrimSpace(w) }) {
			return w
		}
	}
	return want[0] + " (each line is, but not in one piece)"
}

// dedent removes the indentation that all lines share.
func dedent(lines []string) []string {
	indent := ""
	for first, i := true, 0; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == "" {
			continue
		}
		own := lines[i][:len(lines[i])-len(strings.TrimLeft(lines[i], " \t"))]
		if first {
			indent, first = own, false
		}
		for !strings.HasPrefix(own, indent) {
			indent = indent[:len(indent)-1]
		}
	}
	var out []string
	for _, l := range lines {
		out = append(out, strings.TrimRight(strings.TrimPrefix(l, indent), " \t"))
	}
	return out
}
