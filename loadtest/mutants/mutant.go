// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"shop/loadtest"
)

// mutant is a service with one planted mistake.
type mutant struct {
	Name      string // FLOW/NAME
	Teaches   string
	Scenario  string   // FLOW/STRATEGY/FAULT
	Invariant string   // the one that must catch it
	Prove     []string // further flags
	diff      string
	files     []string // that it changes, below the root of the tree
}

// parseMutant reads a file: the lines about the mutant, then the diff.
func parseMutant(name, text string) (m mutant, err error) {
	head, diff, found := strings.Cut(text, "--- a/")
	if !found {
		return m, fmt.Errorf("%s: no diff: want --- a/FILE", name)
	}
	m.Name, m.diff = name, "--- a/"+diff
	for line := range strings.Lines(m.diff) {
		if path, is := strings.CutPrefix(line, "+++ b/"); is {
			m.files = append(m.files, strings.TrimSpace(path))
		}
	}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		switch key, value, _ := strings.Cut(line, ": "); {
		case key == "teaches":
			m.Teaches = value
		case key == "scenario":
			m.Scenario = value
		case key == "invariant":
			m.Invariant = value
		case key == "prove":
			m.Prove = strings.Fields(value)
		case line != "" && !strings.HasPrefix(line, "diff ") && !strings.HasPrefix(line, "index "):
			return m, fmt.Errorf("%s: want teaches, scenario, invariant or prove, and not %q", name, line)
		}
	}
	if m.Teaches == "" || strings.Count(m.Scenario, "/") != 2 || m.Invariant == "" {
		return m, fmt.Errorf("%s: teaches, scenario: FLOW/STRATEGY/FAULT and invariant are needed above the diff", name)
	}
	return m, nil
}

// folder holds the mutants, below the root of the tree.
const folder = "loadtest/mutants"

// readAll reads all mutants of a tree, sorted by name.
func readAll(tree string) (all []mutant, err error) {
	root := os.DirFS(filepath.Join(tree, folder))
	paths, err := fs.Glob(root, "*/*.diff")
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no mutants in %s: run this in the root of the repository", filepath.Join(tree, folder))
	}
	for _, path := range paths {
		text, unread := fs.ReadFile(root, path)
		m, wrong := parseMutant(strings.TrimSuffix(path, ".diff"), string(text))
		all, err = append(all, m), cmp.Or(err, unread, wrong)
	}
	return all, err
}

// apply copies the files that the mutant changes from the tree to dir, and changes them there. A hunk may have moved since
// the diff was made.
func (m mutant) apply(ctx context.Context, tree, dir string) error {
	for _, path := range m.files {
		text, err := os.ReadFile(filepath.Join(tree, path))
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(path)), 0o755), os.WriteFile(filepath.Join(dir, path), text, 0o644))
		}
		if err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "git", "apply", "-")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir)) // dir is in no repository
	cmd.Stdin = strings.NewReader(m.diff)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("git apply: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// outcome builds a mutant, and runs prove on it.
func (c *app) outcome(ctx context.Context, m mutant) judgement {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return judgement{failed, err.Error()}
	}
	defer os.RemoveAll(dir)
	err = c.build(ctx, m, dir)
	var found loadtest.Result
	if err == nil {
		found, err = c.prove(ctx, m, filepath.Join(dir, "shop"))
	}
	switch {
	case err != nil:
		return judgement{failed, err.Error()}
	case len(m.files) == 0:
		return unchanged(found)
	}
	return m.judge(found)
}

// build builds the program of a mutant as shop in dir. The tree stays unchanged: an overlay replaces the changed
// files, and only their packages are compiled again.
func (c *app) build(ctx context.Context, m mutant, dir string) error {
	if len(m.files) > 0 {
		if err := m.apply(ctx, c.Tree, dir); err != nil {
			return err
		}
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, path := range m.files {
		overlay.Replace[filepath.Join(c.Tree, path)] = filepath.Join(dir, path)
	}
	list, err := json.Marshal(overlay)
	file := filepath.Join(dir, "overlay.json")
	if err := errors.Join(err, os.WriteFile(file, list, 0o644)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(dir, "shop"), "./cmd/shop")
	cmd.Dir = c.Tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// defaults are flags that those of a mutant override: a short load, which the unmodified shop has too, how long keys may
// stay undecided, and how long a history is searched for a valid order, which most mutants do not have.
var defaults = [][]string{{"--duration", "2s"}, {"--grace", "8s"}, {"--check-time", "3s"}}

// flags returns the flags of prove for a mutant, or for the unmodified shop.
func (m mutant) flags() []string {
	scenario := strings.Split(m.Scenario, "/")
	flags := append([]string{"--flow", scenario[0], "--strategy", scenario[1], "--fault", scenario[2]}, m.Prove...)
	for i, d := range defaults {
		if !slices.Contains(m.Prove, d[0]) && (i == 0 || len(m.files) > 0) {
			flags = append(flags, d...)
		}
	}
	return flags
}

// prove loads the program of a mutant, and reads the report.
func (c *app) prove(ctx context.Context, m mutant, shop string) (loadtest.Result, error) {
	dir := filepath.Join(c.Out, filepath.FromSlash(m.Name))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return loadtest.Result{}, err
	}
	cmd := exec.CommandContext(ctx, c.Prove, append([]string{"--shop", shop, "--out", dir}, m.flags()...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 15 * time.Second // prove stops its replicas
	out, err := cmd.CombinedOutput()
	_ = os.WriteFile(filepath.Join(dir, "prove.log"), out, 0o644)
	found, readErr := readFinding(filepath.Join(dir, "prove.json"))
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 || err == nil {
		return found, readErr // exit status 1: not as expected, as a mutant should be
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n") // the error is at the end
	return loadtest.Result{}, fmt.Errorf("prove: %w\n%s", err, strings.Join(lines[max(0, len(lines)-5):], "\n"))
}

// word is the outcome of a mutant, or of the unmodified shop.
type word string

const (
	caught   word = "caught"
	accident word = "accident"
	slipped  word = "slipped"
	failed   word = "failed"
	safe     word = "safe" // the unmodified shop
)

// good reports whether the outcome lets the run pass.
func (w word) good() bool { return w == caught || w == safe }

// judgement is an outcome with its reason.
type judgement struct {
	word word
	text string
}

// readFinding reads the only scenario of a report.
func readFinding(path string) (loadtest.Result, error) {
	var report loadtest.Report
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err == nil && len(report.Scenarios) != 1 {
		err = fmt.Errorf("%d scenarios, want 1", len(report.Scenarios))
	}
	if err != nil {
		return loadtest.Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return report.Scenarios[0], nil
}

// broken returns the invariants that did not hold. Their codes are in capitals; the other violations are figures.
func broken(r loadtest.Result) (codes []string) {
	for code, n := range r.Violations {
		if n != 0 && code == strings.ToUpper(code) {
			codes = append(codes, code)
		}
	}
	slices.Sort(codes)
	return codes
}

// judge decides whether the invariant that the mutant names has caught it.
func (m mutant) judge(r loadtest.Result) judgement {
	broken := broken(r)
	text := strings.Join(broken, ", ")
	switch {
	case slices.Contains(broken, m.Invariant):
		return judgement{caught, text}
	case len(broken) > 0:
		return judgement{accident, fmt.Sprintf("%s, and not %s", text, m.Invariant)}
	}
	return judgement{slipped, fmt.Sprintf("verdict %s; want %s broken", r.Verdict, m.Invariant)}
}

// unchanged judges the unmodified shop.
func unchanged(r loadtest.Result) judgement {
	if r.Verdict == loadtest.Safe {
		return judgement{safe, "unchanged"}
	}
	return judgement{failed, fmt.Sprintf("the unmodified shop: verdict %s; broken: %s", r.Verdict, strings.Join(broken(r), ", "))}
}
