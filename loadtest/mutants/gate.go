package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"shop/loadtest"
)

// gate runs mutants in sequence: two loads at once would disturb each other.
type gate struct {
	*app
	out   io.Writer
	tree  string // absolute, as go build -overlay requires
	temp  string
	tried int
	bad   int
}

func (c *app) newGate(out io.Writer) (g *gate, err error) {
	g = &gate{app: c, out: out}
	if g.tree, err = filepath.Abs(c.Tree); err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.Prove); err != nil && !c.Build {
		return nil, fmt.Errorf("%w; make mutants builds it, and starts the servers that it needs", err)
	}
	g.temp, err = os.MkdirTemp("", "mutants")
	return g, err
}

func (g *gate) close() { _ = os.RemoveAll(g.temp) }

// run tries the mutants and prints a summary.
func (g *gate) run(ctx context.Context, mutants []mutant) (status int, err error) {
	start := time.Now()
	if g.Unchanged && !g.Build {
		for _, m := range scenarios(mutants) {
			g.try(ctx, m, unchanged)
		}
	}
	for _, m := range mutants {
		g.try(ctx, m, m.judge)
	}
	switch {
	case ctx.Err() != nil:
		return couldNotRun, errors.New("interrupted")
	case g.tried == 0:
		return couldNotRun, errors.New("no mutant to try")
	}
	fmt.Fprintf(g.out, "%d of %d as expected, in %.0f s\n", g.tried-g.bad, g.tried, time.Since(start).Seconds())
	if g.bad > 0 {
		return notCaught, fmt.Errorf("%d of %d not as expected; prove's reports are in %s", g.bad, g.tried, g.Out)
	}
	return allCaught, nil
}

// try builds a mutant, runs prove on it, and prints a line.
func (g *gate) try(ctx context.Context, m mutant, judge func(finding) judgement) {
	if ctx.Err() != nil {
		return
	}
	start := time.Now()
	j := g.outcome(ctx, m, judge)
	if ctx.Err() != nil {
		return // an interrupted run says nothing about the mutant
	}
	g.tried++
	if !j.word.good() {
		g.bad++
	}
	fmt.Fprintf(g.out, "%-8s  %-40s  %5.1f s  %s\n", j.word, m.Name, time.Since(start).Seconds(), j.text)
}

func (g *gate) outcome(ctx context.Context, m mutant, judge func(finding) judgement) judgement {
	shop, err := g.build(ctx, m)
	switch {
	case err != nil:
		return failure(err)
	case g.Build:
		return judgement{built, ""}
	}
	defer os.Remove(shop)
	found, err := g.prove(ctx, m, shop)
	if err != nil {
		return failure(err)
	}
	return judge(found)
}

// build builds the program of a mutant. The tree stays unchanged: an overlay replaces the changed
// files, and only their packages are compiled again.
func (g *gate) build(ctx context.Context, m mutant) (program string, err error) {
	changed, err := m.changed(g.tree)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(g.temp, "")
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for path, text := range changed {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "-"))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return "", err
		}
		overlay.Replace[filepath.Join(g.tree, filepath.FromSlash(path))] = file
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, list, 0o644); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "shop")
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay", file, "-buildvcs=false", "-ldflags=-s -w", "-o", program, "./cmd/shop")
	cmd.Dir = g.tree
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, bytes.TrimSpace(out))
	}
	return program, nil
}

// shortLoad is the load of a mutant that does not set one.
var shortLoad = []string{"--duration", "2s"}

// impatient bounds how long keys may stay undecided, and how long a history is searched for a valid
// order, which most mutants do not have. The flags of a mutant take precedence.
var impatient = [][]string{{"--grace", "8s"}, {"--check-time", "3s"}}

// flags returns the flags of prove for a mutant, or for the unmodified shop.
func (m mutant) flags() []string {
	flags, defaults := append(m.Scenario.flags(), m.Prove...), [][]string{shortLoad}
	if len(m.files) > 0 {
		defaults = append(defaults, impatient...)
	}
	for _, d := range defaults {
		if !slices.Contains(m.Prove, d[0]) {
			flags = append(flags, d...)
		}
	}
	return flags
}

// calledOffWait is how long prove may take to stop its replicas after an interrupt.
const calledOffWait = 15 * time.Second

// prove loads the program of a mutant, and reads the report.
func (g *gate) prove(ctx context.Context, m mutant, shop string) (finding, error) {
	dir := filepath.Join(g.Out, filepath.FromSlash(m.Name))
	report := filepath.Join(dir, "prove.json")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return finding{}, err
	}
	cmd := exec.CommandContext(ctx, g.Prove, append([]string{"--shop", shop, "--out", dir}, m.flags()...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = calledOffWait
	out, err := cmd.CombinedOutput()
	_ = os.WriteFile(filepath.Join(dir, "prove.log"), out, 0o644)
	found, readErr := readFinding(report)
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 || err == nil {
		return found, readErr // exit status 1: not as expected, as a mutant should be
	}
	return finding{}, fmt.Errorf("prove: %w\n%s", err, lastLines(string(out)))
}

// lastLines returns the end of a program's output, where its error is.
func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// unchanged judges the unmodified shop.
func unchanged(f finding) judgement {
	if f.Verdict == loadtest.Safe {
		return judgement{safe, "unchanged"}
	}
	return judgement{failed, fmt.Sprintf("the unmodified shop: verdict %s; broken: %s", f.Verdict, strings.Join(f.broken(), ", "))}
}
