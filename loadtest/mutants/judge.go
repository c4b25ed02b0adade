// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"shop/inventory"
	"shop/loadtest"
	inventoryflow "shop/loadtest/scenario/inventory"
	transferflow "shop/loadtest/scenario/transfer"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/locking/invariant"
	"shop/transfer"
	"shop/wallet"
)

// word is the outcome of a mutant, or of the unmodified shop.
type word string

const (
	caught   word = "caught"
	accident word = "accident"
	slipped  word = "slipped"
	failed   word = "failed"

	safe  word = "safe"  // the unmodified shop
	built word = "built" // with --build
)

// good reports whether the outcome lets the run pass.
func (w word) good() bool { return w == caught || w == safe || w == built }

// judgement is an outcome with its reason.
type judgement struct {
	word word
	text string
}

// failure is the judgement on a mutant that could not be tried.
func failure(err error) judgement { return judgement{failed, err.Error()} }

// finding is a scenario in prove.json.
type finding struct {
	Flow       string           `json:"flow"`
	Verdict    loadtest.Verdict `json:"verdict"`
	Violations map[string]int64 `json:"violations"`
}

// readFinding reads the only scenario of a report.
func readFinding(path string) (finding, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return finding{}, err
	}
	var report struct{ Scenarios []finding }
	if err := json.Unmarshal(text, &report); err != nil {
		return finding{}, fmt.Errorf("%s: %w", path, err)
	}
	if n := len(report.Scenarios); n != 1 {
		return finding{}, fmt.Errorf("%s has %d scenarios, want 1", path, n)
	}
	return report.Scenarios[0], nil
}

// broken returns the invariants that did not hold.
func (f finding) broken() []string {
	l, err := lessonOf(f.Flow)
	if err != nil {
		return nil
	}
	return l.Broken(f.Violations)
}

// judge decides whether the invariant that the mutant names has caught it.
func (m mutant) judge(f finding) judgement {
	broken := f.broken()
	text := strings.Join(broken, ", ")
	switch {
	case slices.Contains(broken, m.Invariant):
		return judgement{caught, text}
	case len(broken) > 0:
		return judgement{accident, fmt.Sprintf("%s, and not %s", text, m.Invariant)}
	default:
		return judgement{slipped, fmt.Sprintf("verdict %s; want %s broken", f.Verdict, m.Invariant)}
	}
}

// lesson is a flow with its strategies.
type lesson struct {
	*loadtest.Flow
	strategies []loadtest.Strategy
}

func lessons() []lesson {
	return []lesson{
		{inventoryflow.New(), loadtest.StrategiesOf(inventory.Strategies())},
		{transferflow.New(), loadtest.StrategiesOf(transfer.Strategies())},
		{walletflow.New(walletflow.Environment{}), loadtest.StrategiesOf(wallet.Strategies())},
	}
}

func lessonOf(flow string) (lesson, error) {
	all := lessons()
	i := slices.IndexFunc(all, func(l lesson) bool { return l.Name == flow })
	if i < 0 {
		return lesson{}, fmt.Errorf("no flow %q", flow)
	}
	return all[i], nil
}

// check verifies that prove has the mutant's scenario, expects it to be safe, and knows the invariant.
func (m mutant) check() error {
	l, err := lessonOf(m.Scenario.Flow)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(l.AllInvariants(), func(i invariant.Invariant) bool { return i.Code == m.Invariant }) {
		return fmt.Errorf("flow %s has no invariant %s", l.Name, m.Invariant)
	}
	if !slices.ContainsFunc(l.Matrix(l.strategies), func(s loadtest.Scenario) bool {
		return s.Name() == m.Scenario.String() && s.Expect == loadtest.Safe
	}) {
		return fmt.Errorf("prove has no scenario %s that must be safe", m.Scenario)
	}
	return nil
}
