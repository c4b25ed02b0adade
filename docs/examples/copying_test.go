// SPDX-License-Identifier: MIT

// Package examples has no code. Its tests read from docs/copying.md what an example needs,
// copy exactly that into an empty module, and build, vet and run the example there. They also
// copy each lock store alone.
package examples

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"shop/locking/idempotency/pgtx/pgtest"
)

const (
	repo = "../.."
	page = "docs/copying.md"
	// module takes the place of shop in import paths.
	module = "example.org/payments"
	// linesMax bounds an example: all lines below its imports, comments and empty lines included.
	linesMax = 60
)

// recipe is a section of the page with a table of what to take.
type recipe struct {
	title string
	take  []string // folders and files, by their paths in this repository; the last has the example
}

var tableRow = regexp.MustCompile(`^\| \[([^\]]+)\]\(([^)]+)\) \|`)

// recipes reads the page. The first cell of each row of a table "| take | for |" links to its path.
func recipes(t *testing.T) (all []recipe) {
	t.Helper()
	title, inTable := "", false
	for line := range strings.Lines(read(t, page)) {
		if heading, is := strings.CutPrefix(line, "## "); is {
			title = strings.TrimSpace(heading)
		}
		switch m := tableRow.FindStringSubmatch(line); {
		case strings.HasPrefix(line, "| take |"):
			inTable = true
			all = append(all, recipe{title: title})
		case !strings.HasPrefix(line, "|"):
			inTable = false
		case inTable && m != nil:
			if target := path.Join(path.Dir(page), m[2]); target != m[1] {
				t.Errorf("%s: %q links to %q", page, m[1], target)
			}
			last := &all[len(all)-1]
			last.take = append(last.take, m[1])
		}
	}
	if len(all) != 4 {
		t.Fatalf("%s: %d tables of what to take, want 4", page, len(all))
	}
	return all
}

func TestCopying_EachExampleRunsInAnEmptyModule(t *testing.T) {
	slots := make(chan struct{}, 2)
	for _, r := range recipes(t) {
		t.Run(r.title, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			dir, postgres := copied(t, r.take), pgtest.Schema(t) // the same example may run beside it
			file, names := example(t, r)
			run := []string{"test", "-vet=off", "-count=1", "-timeout=2m", "-v", "-run=^(" + strings.Join(names, "|") + ")$", "./" + path.Dir(file)}
			for _, args := range [][]string{{"build", "./..."}, {"vet", "./..."}, run} {
				out, err := goCommand(t, dir, postgres, args...)
				if err != nil {
					t.Fatalf("go %s: %v\n%s", args[0], err, out)
				}
				if passed := strings.Count(out, "--- PASS: Example"); args[0] == "test" && passed != len(names) {
					t.Errorf("%d of %v ran:\n%s", passed, names, out)
				}
			}
			stripped(t, dir, file)
			if out, err := goCommand(t, dir, postgres, "vet", "./..."); err != nil {
				t.Errorf("without the tests: go vet: %v\n%s", err, out)
			}
		})
	}
}

// Each row is needed: something else that is taken imports or embeds it. And a module without the first one does not compile.
func TestCopying_NoticesWhatIsMissing(t *testing.T) {
	for _, r := range recipes(t) {
		dir := copied(t, r.take[1:])
		if _, err := goCommand(t, dir, "", "vet", "./..."); err == nil {
			t.Errorf("%s: without %s nothing is missing", r.title, r.take[0])
		}
		all := files(t, r.take)
		for i, taken := range r.take[:len(r.take)-1] { // the last is the example
			others := ""
			for _, file := range slices.Concat(slices.Delete(slices.Clone(all), i, i+1)...) {
				others += read(t, file)
			}
			pkg := taken
			if strings.HasSuffix(taken, ".go") {
				pkg = path.Dir(taken)
			}
			if !strings.Contains(others, `"shop/`+pkg+`"`) && !strings.Contains(others, "//go:embed "+path.Base(taken)+"/") {
				t.Errorf("%s: nothing that is taken needs %s", r.title, taken)
			}
		}
	}
}

func TestExamples_AreShort(t *testing.T) {
	for _, r := range recipes(t) {
		file, _ := example(t, r)
		_, below, _ := strings.Cut(read(t, file), "\n)\n") // of the imports
		lines := strings.Count(strings.TrimSpace(below), "\n") + 1
		t.Logf("%s: %d lines", file, lines)
		if lines < 10 || lines > linesMax {
			t.Errorf("%s: %d lines below its imports, want 10 to %d", file, lines, linesMax)
		}
	}
}

// stripped removes what the page says that may be left out: tests but the example, and the suite.
func stripped(t *testing.T, dir, example string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(file string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(file, "_test.go") && file != filepath.Join(dir, example) {
			err = errors.Join(err, os.Remove(file))
		}
		return err
	})
	for _, suite := range []string{"locking/locktest", "locking/servertest", "locking/redislock/redistest", "locking/idempotency/pgtx/pgtest"} {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, suite)))
	}
	if err != nil {
		t.Fatal(err)
	}
}

var exampleFunc = regexp.MustCompile(`(?m)^func (Example\w*)\(\)`)

// example is the file of a recipe's examples, and their names.
func example(t *testing.T, r recipe) (file string, names []string) {
	t.Helper()
	for _, file := range files(t, r.take[len(r.take)-1:])[0] {
		for _, m := range exampleFunc.FindAllStringSubmatch(read(t, file), -1) {
			names = append(names, m[1])
		}
		if len(names) > 0 {
			return file, names
		}
	}
	t.Fatalf("%s: no example in %s", r.title, r.take[len(r.take)-1])
	return "", nil
}

// copied makes a module of what is taken, with this module's requirements.
func copied(t *testing.T, take []string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	write := func(name, text string) {
		target := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	requirements, _, _ := strings.Cut(read(t, "go.mod"), "\ntool (")
	write("go.mod", strings.Replace(requirements, "module shop\n", "module "+module+"\n", 1))
	write("go.sum", read(t, "go.sum"))
	for _, file := range slices.Concat(files(t, take)...) {
		text := read(t, file)
		if strings.HasSuffix(file, ".go") {
			text = strings.ReplaceAll(text, `"shop/`, `"`+module+"/")
		}
		write(file, text)
	}
	return dir
}

// files are those of each folder, without its folders; a file is itself.
func files(t *testing.T, take []string) (all [][]string) {
	t.Helper()
	for _, taken := range take {
		var own []string
		entries, err := os.ReadDir(filepath.Join(repo, taken))
		if errors.Is(err, syscall.ENOTDIR) {
			own, err = []string{taken}, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			if entry.Type().IsRegular() {
				own = append(own, path.Join(taken, entry.Name()))
			}
		}
		all = append(all, own)
	}
	return all
}

// goCommand runs go in dir, from the module cache as it is.
func goCommand(t *testing.T, dir, postgres string, args ...string) (string, error) {
	t.Helper()
	return goWith(t, dir, []string{"GOPROXY=off", "GOTOOLCHAIN=local", "SHOP_POSTGRES_URL=" + postgres}, args...)
}

// goWith runs go in dir, with these settings.
func goWith(t *testing.T, dir string, settings []string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PWD="+dir, "GOFLAGS=-mod=mod -trimpath", "GOWORK=off"), settings...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // and what it started
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
