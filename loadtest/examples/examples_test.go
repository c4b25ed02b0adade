// SPDX-License-Identifier: MIT

// Package examples tests the example of docs/ci.md: a shop in Python, the file that proves it, three
// shops that are wrong in one place, and a flash sale on Redis, right and wrong. The tests run the gate on all.
package examples

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"shop/loadtest"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/judge"
	"shop/loadtest/site"
	"shop/locking/locktest"
	"shop/locking/servertest"
)

// prove is the path of prove, built for these tests.
var prove string

func TestMain(m *testing.M) {
	var folder string
	prove, folder = testbed.Build("shop/loadtest/prove")
	status := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(status)
}

// gate runs the gate on a shop with a database of its own.
func gate(t *testing.T, shop string, flags ...string) (status int, result loadtest.Result, out string) {
	t.Helper()
	for range 3 { // a machine that is too busy to send the load in time proves nothing
		if status, result, out = gateOnce(t, shop, flags...); !strings.Contains(out, "the generator lagged") {
			break
		}
	}
	return status, result, out
}

func gateOnce(t *testing.T, shop string, flags ...string) (status int, result loadtest.Result, out string) {
	t.Helper()
	db, err := site.CreateDatabase(t.Context(), testbed.Env(t, "SHOP_POSTGRES_URL"), "example "+rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	folder := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "./gate", append([]string{shop, "--out", folder}, flags...)...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+db.URL, "REDIS_URL="+testbed.Env(t, "SHOP_REDIS_URL"), "PROVE="+prove, "SHOP_1="+"http://"+servertest.FreeAddr(t), "SHOP_2="+"http://"+servertest.FreeAddr(t), "GITHUB_STEP_SUMMARY=")
	printed, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "prove.json"))
	var report loadtest.Report
	if err := errors.Join(err, json.Unmarshal(text, &report)); err != nil || len(report.Scenarios) != 1 {
		t.Fatalf("%v\n%s", err, printed)
	}
	return cmd.ProcessState.ExitCode(), report.Scenarios[0], string(printed)
}

func TestGate_TheRightShopPassesAndEachWrongOneFailsByTheNameOfWhatItBreaks(t *testing.T) {
	for _, c := range []struct {
		shop   string
		breaks []string
		keeps  []string
	}{
		{"shop.py", nil, []string{"I-ONCE", "I-LIVE", "I-DENY", "I-SUPPLY", "I-SOLD", "I-SHOWN", "I-LIMIT", "stock-balance", "one-order-per-key", "acknowledged-is-stored", "refused-is-absent"}},
		{"wrong/no_lock.py", []string{"stock-balance"}, []string{"I-ONCE", "I-DENY", "one-order-per-key", "acknowledged-is-stored"}},
		{"wrong/key_apart.py", []string{"I-ONCE", "one-order-per-key"}, []string{"I-DENY", "stock-balance"}},
		{"wrong/early_answer.py", []string{"acknowledged-is-stored", "I-SUPPLY", "I-SHOWN"}, []string{"I-DENY", "stock-balance", "one-order-per-key"}},
	} {
		t.Run(c.shop, func(t *testing.T) {
			status, result, out := gate(t, c.shop)
			for _, name := range c.breaks {
				if result.Violations[name] == 0 || !strings.Contains(out, name) {
					t.Errorf("%s is not found, or not printed", name)
				}
			}
			for _, name := range c.keeps {
				if n, checked := result.Violations[name]; n != 0 || !checked {
					t.Errorf("%s: %d violations, checked: %v", name, n, checked)
				}
			}
			want := 0
			if len(c.breaks) > 0 {
				want = 1
			}
			if status != want || t.Failed() {
				t.Errorf("exit status %d, want %d:\n%s", status, want, out)
			}
		})
	}
}

// The flash sale that reads the stock, compares and writes looked correct under requests that came one by one.
func TestGate_AFlashSaleThatReadsAndThenWritesIsCaughtWithEachSeed(t *testing.T) {
	proveFlash(t, "1")
}

func TestGate_AFlashSaleWithTenSeeds(t *testing.T) {
	locktest.Slow(t, "twenty runs of the gate with the default load")
	for seed := 2; seed <= 10; seed++ {
		proveFlash(t, fmt.Sprint(seed))
	}
}

// proveFlash runs the gate on the flash sale and on the wrong one.
func proveFlash(t *testing.T, seed string) {
	t.Helper()
	for shop, want := range map[string]loadtest.Verdict{"flash.py": loadtest.Safe, "wrong/flash_get_set.py": loadtest.Violated} {
		status, result, out := gate(t, shop, "--seed", seed)
		wrong := want == loadtest.Violated
		if result.Verdict != want || (status == 1) != wrong || (result.Violations["I-SUPPLY"] > 0) != wrong || result.Evidence["overlaps"] < judge.OverlapsLeast {
			t.Errorf("%s, seed %s: exit status %d, %s; want %s:\n%s", shop, seed, status, result.Verdict, want, out)
		}
		for _, kept := range []string{"I-ONCE", "I-LIVE", "I-SOLD", "I-LIMIT"} {
			if result.Violations[kept] != 0 {
				t.Errorf("%s, seed %s: %s is broken:\n%s", shop, seed, kept, out)
			}
		}
		t.Logf("seed %s: %s: %s", seed, shop, result.Verdict)
	}
}

// The workflow cannot run here. The flags and files that it names must exist.
func TestWorkflow_NamesFlagsAndFilesThatThereAre(t *testing.T) {
	text, err := os.ReadFile("workflow.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		On   []string
		Jobs map[string]struct {
			Env   map[string]string
			Steps []struct{ Name, Run, Uses string }
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil || len(workflow.On) == 0 || len(workflow.Jobs) != 1 {
		t.Fatalf("%v: %+v", err, workflow)
	}
	help, err := exec.CommandContext(t.Context(), prove, "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	proofs := 0
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			if (step.Run == "") == (step.Uses == "") {
				t.Errorf("a step has one of run and uses: %+v", step)
			}
			for _, file := range regexp.MustCompile(`[\w/]+\.(py|yaml|sql)\b`).FindAllString(step.Run, -1) {
				if !strings.HasPrefix(file, "/") {
					if _, err := os.Stat(file); err != nil {
						t.Error(err)
					}
				}
			}
			if !strings.Contains(step.Run, "bin/prove ") {
				continue
			}
			proofs++
			for _, flag := range regexp.MustCompile(`--[a-z-]+`).FindAllString(step.Run, -1) {
				if !slices.ContainsFunc(strings.Fields(string(help)), func(word string) bool { return word == flag || strings.HasPrefix(word, flag+"=") }) {
					t.Errorf("prove has no %s", flag)
				}
			}
		}
		for _, name := range []string{"DATABASE_URL", "SHOP_1", "SHOP_2"} {
			if job.Env[name] == "" {
				t.Errorf("%s is not set, and prove.yaml needs it", name)
			}
		}
	}
	if proofs != 1 {
		t.Errorf("prove runs %d times", proofs)
	}
}
