// SPDX-License-Identifier: MIT

package examples

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shop/locking/idempotency/pgtx/pgtest"
)

// unit is a row of the table "| unit |": what stands alone, and an example that uses it.
type unit struct {
	name, example string
	take          []string // folders, without their tests, and files
	said          string   // its files and lines
}

var thousands = regexp.MustCompile(`(\d),(\d{3})`)

var link = regexp.MustCompile(`\[([^\]]+)\]\(([^)]+)\)`)

func units(t *testing.T) (all []unit) {
	t.Helper()
	_, table, _ := strings.Cut(read(t, page), "\n| unit |")
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 6 || !strings.Contains(line, "](") {
			if len(all) > 0 {
				break
			}
			continue
		}
		u := unit{name: strings.TrimSpace(cells[1]), said: thousands.ReplaceAllString(strings.TrimSpace(cells[4]), "$1$2")}
		for _, m := range link.FindAllStringSubmatch(cells[2], -1) {
			u.take = append(u.take, path.Join("docs", m[2]))
		}
		u.example = path.Join("docs", link.FindStringSubmatch(cells[3])[2])
		all = append(all, u)
	}
	if len(all) < 6 {
		t.Fatalf("%d units, want at least 6", len(all))
	}
	return all
}

// service is a module that has something already: packages with names of ours, and texts that look like an import.
var service = map[string]string{
	"main.go": `package main

import (
	"fmt"

	"example.org/service/locking"
)

var topics = []string{
	"shop/locking/orders",
}

func main() { fmt.Println(topics, locking.Door) }
`,
	"locking/door.go":          "package locking\n\nconst Door = 1\n",
	"internal/locking/door.go": "package locking\n\nconst Door = 2\n",
	"internal/topics.go": `package internal

var Topics = []string{
	"shop/locking/orders",
}
`,
}

// serviceDir makes the service. write adds a file to it.
func serviceDir(t *testing.T) (dir string, write func(name, text string)) {
	t.Helper()
	dir = t.TempDir()
	write = func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(dir, path.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	requirements, _, _ := strings.Cut(read(t, "go.mod"), "\ntool (")
	write("go.mod", strings.Replace(requirements, "module shop\n", "module example.org/service\n", 1))
	write("go.sum", read(t, "go.sum"))
	for name, text := range service {
		write(name, text)
	}
	return dir, write
}

// Each unit is copied below internal/ of a service, as the page says, and is built, vetted and run there.
func TestCopying_EachUnitStandsAloneInAServiceAndCompiles(t *testing.T) {
	slots := make(chan struct{}, 2)
	for _, u := range units(t) {
		t.Run(u.name, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			dir, write := serviceDir(t)
			count, code := 0, 0
			for _, file := range slices.Concat(append(files(t, u.take), []string{u.example})...) {
				if strings.HasSuffix(file, "_test.go") && file != u.example {
					continue
				}
				text := read(t, file)
				if strings.HasSuffix(file, ".go") {
					if file != u.example {
						count, code = count+1, code+codeLines(text)
					}
					text = inService.ReplaceAllString(text, "${1}\"example.org/service/internal/shop/")
				}
				write(path.Join("internal/shop", file), text)
			}
			var saidFiles, saidCode int
			if _, err := fmt.Sscanf(strings.Replace(u.said, ",", " ", 1), "%d %d", &saidFiles, &saidCode); err != nil || count != saidFiles || code < saidCode*95/100 || code > saidCode*105/100 {
				t.Errorf("%s has %d files and %d lines of code, the page says %s (%v)", u.name, count, code, u.said, err)
			}
			postgres := pgtest.Schema(t)
			for _, args := range [][]string{{"build", "./..."}, {"vet", "./..."}, {"test", "-vet=off", "-count=1", "-timeout=2m", "-v", "-run=^Example", "./internal/shop/" + path.Dir(u.example)}} {
				out, err := goCommand(t, dir, postgres, args...)
				if err != nil {
					t.Fatalf("go %s: %v\n%s", args[0], err, out)
				}
				if args[0] == "test" && !strings.Contains(out, "--- PASS: Example") {
					t.Errorf("no example ran:\n%s", out)
				}
			}
			unchanged(t, dir)
			t.Logf("%-50s %2d files, %4d lines of code", u.name, count, code)
		})
	}
}

// The commands of the page, typed in such a service.
func TestCopying_TheCommandsForYourModuleWork(t *testing.T) {
	t.Parallel()
	blocks := typedBlocks(read(t, page), "docs/examples/units_test.go")
	if len(blocks) != 2 {
		t.Fatalf("%d blocks are typed, want 2", len(blocks))
	}
	dir, _ := serviceDir(t)
	ours, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "SHOP="+ours, "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local", "PWD="+dir)
	checkTyped(t, dir, env, blocks, strings.NewReplacer())
	unchanged(t, dir)
}

// unchanged fails the test if something of the service has changed.
func unchanged(t *testing.T, dir string) {
	t.Helper()
	for name, want := range service {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s of the service has changed: %s", name, text)
		}
	}
}

// inService matches the imports of this module, and no other text.
var inService = regexp.MustCompile(`(?m)^(\s*(?:import )?(?:\w+ )?)"shop/`)

// codeLines counts the lines that are neither empty nor comments.
func codeLines(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			n++
		}
	}
	return n
}
