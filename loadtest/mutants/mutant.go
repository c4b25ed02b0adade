// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// mutant is a service with one planted mistake.
type mutant struct {
	Name      string // FLOW/NAME
	Teaches   string
	Scenario  scenario
	Invariant string   // the one that must catch it
	Prove     []string // further flags
	diff      string
	files     []string // that it changes, below the root of the tree
}

// scenario names a scenario of prove.
type scenario struct{ Flow, Strategy, Fault string }

func (s scenario) String() string { return s.Flow + "/" + s.Strategy + "/" + s.Fault }

// flags select the scenario.
func (s scenario) flags() []string {
	return []string{"--flow", s.Flow, "--strategy", s.Strategy, "--fault", s.Fault}
}

// parseMutant reads a file: the lines about the mutant, then the diff.
func parseMutant(name, text string) (m mutant, err error) {
	m.Name = name
	head, diff, found := strings.Cut(text, "--- a/")
	if !found {
		return m, fmt.Errorf("%s: no diff: want --- a/FILE", name)
	}
	if err := m.readHead(head); err != nil {
		return m, fmt.Errorf("%s: %w", name, err)
	}
	m.diff = "--- a/" + diff
	for line := range strings.Lines(m.diff) {
		if path, is := strings.CutPrefix(line, "+++ b/"); is {
			m.files = append(m.files, strings.TrimSpace(path))
		}
	}
	return m, nil
}

func (m *mutant) readHead(head string) error {
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		key, value, _ := strings.Cut(line, ": ")
		switch key {
		case "teaches":
			m.Teaches = value
		case "scenario":
			parts := strings.Split(value, "/")
			if len(parts) != 3 {
				return fmt.Errorf("want scenario: FLOW/STRATEGY/FAULT, and not %s", value)
			}
			m.Scenario = scenario{parts[0], parts[1], parts[2]}
		case "invariant":
			m.Invariant = value
		case "prove":
			m.Prove = strings.Fields(value)
		default:
			if line != "" && !strings.HasPrefix(line, "diff ") && !strings.HasPrefix(line, "index ") {
				return fmt.Errorf("want teaches, scenario, invariant or prove, and not %q", line)
			}
		}
	}
	if m.Teaches == "" || m.Scenario == (scenario{}) || m.Invariant == "" {
		return errors.New("teaches, scenario and invariant are needed above the diff")
	}
	return nil
}

// folder holds the mutants, below the root of the tree.
const folder = "loadtest/mutants"

// readAll reads all mutants of a tree, sorted by name.
func readAll(tree string) (all []mutant, err error) {
	root := filepath.Join(tree, folder)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".diff" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, strings.TrimSuffix(path, ".diff"))
		if err != nil {
			return err
		}
		m, err := parseMutant(filepath.ToSlash(name), string(text))
		all = append(all, m)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
		err = fmt.Errorf("no mutants in %s: run this in the root of the repository", root)
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

// only keeps the named mutants; the name of a folder stands for all mutants in it.
func only(all []mutant, names []string) ([]mutant, error) {
	var chosen []mutant
	for _, name := range names {
		n := len(chosen)
		for _, m := range all {
			if m.Name == name || strings.HasPrefix(m.Name, strings.TrimSuffix(name, "/")+"/") {
				chosen = append(chosen, m)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("no mutant %s; --list prints the names", name)
		}
	}
	return chosen, nil
}

// tenth returns every tenth mutant, beginning with another one each day: ten days cover all mutants.
func tenth(all []mutant, day time.Time) (chosen []mutant) {
	date := day.Unix() / int64((24 * time.Hour).Seconds())
	for i := int(date % 10); i < len(all); i += 10 {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// scenarios returns the scenarios that mutants name, each with the flags of the first one.
func scenarios(mutants []mutant) (distinct []mutant) {
	for _, m := range mutants {
		if !slices.ContainsFunc(distinct, func(d mutant) bool { return d.Scenario == m.Scenario }) {
			distinct = append(distinct, mutant{Name: m.Scenario.String(), Scenario: m.Scenario, Prove: m.Prove})
		}
	}
	return distinct
}
