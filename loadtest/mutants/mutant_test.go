// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/inventory"
	"shop/loadtest"
	inventoryflow "shop/loadtest/scenario/inventory"
	transferflow "shop/loadtest/scenario/transfer"
	walletflow "shop/loadtest/scenario/wallet"
	"shop/locking/invariant"
	"shop/transfer"
	"shop/wallet"
)

// root is the repository.
const root = "../.."

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

// check verifies that prove has the mutant's scenario, expects it to be safe, and knows the invariant.
func (m mutant) check() error {
	all := lessons()
	i := slices.IndexFunc(all, func(l lesson) bool { return strings.HasPrefix(m.Scenario, l.Name+"/") })
	if i < 0 {
		return fmt.Errorf("no flow of %s", m.Scenario)
	}
	if !slices.ContainsFunc(all[i].AllInvariants(), func(i invariant.Invariant) bool { return i.Code == m.Invariant }) {
		return fmt.Errorf("flow %s has no invariant %s", all[i].Name, m.Invariant)
	}
	if !slices.ContainsFunc(all[i].Matrix(all[i].strategies), func(s loadtest.Scenario) bool {
		return s.Name() == m.Scenario && s.Expect == loadtest.Safe
	}) {
		return fmt.Errorf("prove has no scenario %s that must be safe", m.Scenario)
	}
	return nil
}

// broken tells the codes of invariants and the figure of a flow apart.
func TestInvariants_HaveCodesInCapitals(t *testing.T) {
	for _, l := range lessons() {
		for _, i := range l.AllInvariants() {
			if i.Code != strings.ToUpper(i.Code) {
				t.Errorf("%s: %s", l.Name, i.Code)
			}
		}
		if l.Number == strings.ToUpper(l.Number) {
			t.Errorf("%s: %s", l.Name, l.Number)
		}
	}
}

// make mutants builds each of them; here that would take minutes.
func TestMutants_EachAppliesAndNamesAScenarioAndAnInvariant(t *testing.T) {
	all, err := readAll(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 {
		t.Errorf("%d mutants, want at least 40", len(all))
	}
	taught := map[string]string{}
	for _, m := range all {
		if err := m.check(); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		flow, _, _ := strings.Cut(m.Name, "/")
		if !strings.HasPrefix(m.Scenario, flow+"/") {
			t.Errorf("%s is not in the folder of the flow of %s", m.Name, m.Scenario)
		}
		if other := taught[m.Teaches+flow]; other != "" {
			t.Errorf("%s teaches what %s does", m.Name, other)
		}
		taught[m.Teaches+flow] = m.Name
		dir := t.TempDir()
		if err := m.apply(t.Context(), root, dir); err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		for _, path := range m.files {
			was, err := os.ReadFile(filepath.Join(root, path))
			if is, err2 := os.ReadFile(filepath.Join(dir, path)); err != nil || err2 != nil || bytes.Equal(was, is) {
				t.Errorf("%s changes nothing in %s (%v, %v)", m.Name, path, err, err2)
			}
			if filepath.Ext(path) != ".go" {
				continue
			}
			if _, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, path), nil, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
	}
}

func TestMutants_ChangeServicesAndNotTheProof(t *testing.T) {
	all, err := readAll(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if len(m.files) == 0 {
			t.Errorf("%s changes nothing", m.Name)
		}
		for _, path := range m.files {
			if strings.HasPrefix(path, "loadtest/") || strings.HasSuffix(path, "_test.go") {
				t.Errorf("%s changes %s", m.Name, path)
			}
		}
	}
}

const wrong = `teaches: two and two is five
scenario: inventory/row/none
invariant: S1
prove: --duration 4s --rate 300

--- a/song.txt
+++ b/song.txt
@@ -2,1 +2,1 @@
-two
+TWO
`

func TestParseMutant_ReadsTheHeadAndTheDiff(t *testing.T) {
	m, err := parseMutant("inventory/wrong", wrong)
	if err != nil {
		t.Fatal(err)
	}
	if m.Teaches != "two and two is five" || m.Scenario != "inventory/row/none" || m.Invariant != "S1" ||
		!slices.Equal(m.Prove, []string{"--duration", "4s", "--rate", "300"}) || len(m.files) != 1 {
		t.Errorf("%+v", m)
	}
}

func TestParseMutant_RefusesAnIncompleteHead(t *testing.T) {
	for what, edit := range map[string][2]string{
		"teaches, scenario": {"teaches: two and two is five\n", ""},
		"invariant":         {"invariant: S1\n", ""},
		"FLOW/STRATEGY":     {"inventory/row/none", "inventory/row"},
		`not "caught by`:    {"invariant: S1", "caught by: S1"},
		"no diff":           {"--- a/song.txt\n", ""},
	} {
		_, err := parseMutant("inventory/wrong", strings.Replace(wrong, edit[0], edit[1], 1))
		if err == nil || !strings.Contains(err.Error(), what) || !strings.Contains(err.Error(), "inventory/wrong") {
			t.Errorf("%q for %q: error %v, want one with %q", edit[1], edit[0], err, what)
		}
	}
}

func TestCheck_KnowsScenariosAndInvariants(t *testing.T) {
	for want, edit := range map[string][2]string{
		"no flow":        {"inventory/row", "shelves/row"},
		"no invariant":   {"invariant: S1", "invariant: T1"},
		"no scenario":    {"row/none", "row/lock-lost"}, // row has no lock to lose
		"must be safe":   {"row/none", "naive/none"},
		"no scenario of": {"row/none", "column/none"},
	} {
		m, err := parseMutant("inventory/wrong", strings.Replace(wrong, edit[0], edit[1], 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := m.check(); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, " of")) {
			t.Errorf("%q: error %v, want %q", edit[1], err, want)
		}
	}
}

func TestTenth_TenDaysCoverEachMutantOnce(t *testing.T) {
	var all []mutant
	for i := range 47 {
		all = append(all, mutant{Name: string(rune('A' + i))})
	}
	seen := map[string]int{}
	day := time.Date(2026, 2, 25, 23, 0, 0, 0, time.UTC)
	for i := range 10 {
		chosen := tenth(all, day.AddDate(0, 0, i))
		if n := len(chosen); n != 4 && n != 5 {
			t.Errorf("day %d: %d of 47", i, n)
		}
		for _, m := range chosen {
			seen[m.Name]++
		}
	}
	for _, m := range all {
		if seen[m.Name] != 1 {
			t.Errorf("%s had %d turns", m.Name, seen[m.Name])
		}
	}
}

func TestOnly_KeepsMutantsAndFolders(t *testing.T) {
	all := []mutant{{Name: "a/x"}, {Name: "a/y"}, {Name: "b/x"}}
	chosen, err := only(all, []string{"b/x", "a/"})
	if err != nil || len(chosen) != 3 || chosen[0].Name != "b/x" || chosen[2].Name != "a/y" {
		t.Errorf("%+v, %v", chosen, err)
	}
	if _, err := only(all, []string{"a/x", "c"}); err == nil || !strings.Contains(err.Error(), "c") {
		t.Errorf("error %v", err)
	}
}
