// SPDX-License-Identifier: MIT

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

// suite runs mutants in sequence: two loads at once would disturb each other.
type suite struct {
	*app
	out   io.Writer
	tree  string // absolute, as go build -overlay requires
	temp  string
	tried int
	bad   int
}

func (c *app) newSuite(out io.Writer) (s *suite, err error) {
	s = &suite{app: c, out: out}
	if s.tree, err = filepath.Abs(c.Tree); err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.Prove); err != nil && !c.Build {
		return nil, fmt.Errorf("%w; make mutants builds it, and starts the servers that it needs", err)
	}
	s.temp, err = os.MkdirTemp("", "mutants")
	return s, err
}

func (s *suite) close() { _ = os.RemoveAll(s.temp) }

// run tries the mutants and prints a summary.
func (s *suite) run(ctx context.Context, mutants []mutant) (status int, err error) {
	start := time.Now()
	if s.Unchanged && !s.Build {
		for _, m := range scenarios(mutants) {
			s.try(ctx, m, unchanged)
		}
	}
	for _, m := range mutants {
		s.try(ctx, m, m.judge)
	}
	switch {
	case ctx.Err() != nil:
		return couldNotRun, errors.New("interrupted")
	case s.tried == 0:
		return couldNotRun, errors.New("no mutant to try")
	}
	fmt.Fprintf(s.out, "%d of %d as expected, in %.0f s\n", s.tried-s.bad, s.tried, time.Since(start).Seconds())
	if s.bad > 0 {
		return notCaught, fmt.Errorf("%d of %d not as expected; prove's reports are in %s", s.bad, s.tried, s.Out)
	}
	return allCaught, nil
}

// try builds a mutant, runs prove on it, and prints a line.
func (s *suite) try(ctx context.Context, m mutant, judge func(finding) judgement) {
	if ctx.Err() != nil {
		return
	}
	start := time.Now()
	j := s.outcome(ctx, m, judge)
	if ctx.Err() != nil {
		return // an interrupted run says nothing about the mutant
	}
	s.tried++
	if !j.word.good() {
		s.bad++
	}
	fmt.Fprintf(s.out, "%-8s  %-40s  %5.1f s  %s\n", j.word, m.Name, time.Since(start).Seconds(), j.text)
}

func (s *suite) outcome(ctx context.Context, m mutant, judge func(finding) judgement) judgement {
	shop, err := s.build(ctx, m)
	switch {
	case err != nil:
		return failure(err)
	case s.Build:
		return judgement{built, ""}
	}
	defer os.Remove(shop)
	found, err := s.prove(ctx, m, shop)
	if err != nil {
		return failure(err)
	}
	return judge(found)
}

// build builds the program of a mutant. The tree stays unchanged: an overlay replaces the changed
// files, and only their packages are compiled again.
func (s *suite) build(ctx context.Context, m mutant) (program string, err error) {
	dir, err := os.MkdirTemp(s.temp, "")
	if err == nil && len(m.files) > 0 {
		err = m.apply(ctx, s.tree, dir)
	}
	if err != nil {
		return "", err
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, path := range m.files {
		overlay.Replace[filepath.Join(s.tree, path)] = filepath.Join(dir, path)
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
	cmd.Dir = s.tree
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
func (s *suite) prove(ctx context.Context, m mutant, shop string) (finding, error) {
	dir := filepath.Join(s.Out, filepath.FromSlash(m.Name))
	report := filepath.Join(dir, "prove.json")
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return finding{}, err
	}
	cmd := exec.CommandContext(ctx, s.Prove, append([]string{"--shop", shop, "--out", dir}, m.flags()...)...)
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
