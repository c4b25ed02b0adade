// SPDX-License-Identifier: MIT

package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"shop/compose/local/stack"
	"shop/inventory"
	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/transfer"
	"shop/wallet"
)

func TestSoak_UsageIsChecked(t *testing.T) {
	for _, args := range [][]string{
		{"--soak", "1h", "--quick"},
		{"--soak", "1h", "--nemesis"},
		{"--soak", "1h", "--fault", "crash"},
		{"--soak", "1h", "--strategy", "row"},
		{"--soak", "1h", "--duration", "1m"},
		{"--soak", "1h", "--soak-every", "0s"},
		{"--soak", "1h", "--soak-shift", "10m"}, // too few shifts to compare
		{"--soak", "1h", "--soak-shift", "1s"},
		{"--soak", "1m"},
	} {
		if status, err := run(t.Context(), args, io.Discard, io.Discard); status != couldNotRun || err == nil {
			t.Errorf("%q: %d, %v", args, status, err)
		}
	}
}

func TestSoak_AShiftIsATwentiethOfTheSoakWithinBounds(t *testing.T) {
	for soak, want := range map[time.Duration]time.Duration{
		3 * time.Minute: 15 * time.Second, time.Hour: 3 * time.Minute, 8 * time.Hour: 5 * time.Minute,
	} {
		if got := (soakFlags{Soak: soak}).shift(); got != want {
			t.Errorf("%v: %v, want %v", soak, got, want)
		}
	}
}

func TestSoak_RunsASafeStrategyOfEachFlow(t *testing.T) {
	safe := map[string]bool{}
	for _, s := range inventory.Strategies() {
		safe["inventory/"+s.Name] = s.Safe
	}
	for _, s := range transfer.Strategies() {
		safe["transfer/"+s.Name] = s.Safe
	}
	for _, s := range wallet.Strategies() {
		safe["wallet/"+s.Name] = s.Safe
	}
	scenarios := soaks((&environment{}).lessons())
	if len(scenarios) != 3 {
		t.Fatalf("%d flows", len(scenarios))
	}
	for _, s := range scenarios {
		if !safe[s.Flow.Name+"/"+s.Strategy] || s.Flow.Archive == nil || s.Expect != loadtest.Safe {
			t.Errorf("%s: not safe, or never emptied", s.Name())
		}
	}
}

func TestSoak_EveryOtherShiftRestartsAStoreOneAfterTheOther(t *testing.T) {
	e := &environment{settings: &app{Soak: soakFlags{Restarts: true}}, private: map[string]*stack.Server{}}
	restarts := e.restarts(soaks(e.lessons()))
	var names []string
	for shift := 1; shift <= 12; shift++ {
		if r, restarts := restarts(shift).(fault.Restart); restarts {
			names = append(names, r.Name)
		} else {
			names = append(names, "")
		}
	}
	want := []string{"", "postgres", "", "redis", "", "etcd", "", "mongo", "", "postgres", "", "redis"}
	if !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	e.settings.Soak.Restarts = false
	if _, none := restarts(2).(fault.None); !none {
		t.Error("a restart although there are to be none")
	}
}

func TestSoak_RequestsOfShiftsThatAreAsExpectedAreForgotten(t *testing.T) {
	c := app{Out: t.TempDir()}
	keep := c.keepShift()
	scenario := soaks((&environment{}).lessons())[0]
	for n := range 2 * keptShifts {
		scenario.Seed = int64(n + 1)
		r := loadtest.NewResult(scenario, 3)
		r.AsExpected = n == 0
		file := filepath.Join(c.Out, r.Folder(), "history.jsonl")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := keep(&r); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(file)
		if (err == nil) == r.AsExpected || r.Slimmed() != (n == 0 || n > keptShifts) {
			t.Errorf("shift %d: file %v, forgotten %v", n+1, err, r.Slimmed())
		}
	}
}
