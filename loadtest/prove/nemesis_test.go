// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest"
	"shop/loadtest/judge"
	"shop/loadtest/linear"
)

func TestNemesis_UsageIsChecked(t *testing.T) {
	for _, args := range [][]string{
		{"--nemesis", "--quick"},
		{"--nemesis", "--fault", "crash"},
		{"--nemesis", "--duration", "1m"},
		{"--nemesis", "--replicas", "2"},
		{"--nemesis", "--count", "0"},
		{"--nemesis", "--for", "1s"},
	} {
		if status, err := run(t.Context(), args, io.Discard, io.Discard); status != couldNotRun || err == nil {
			t.Errorf("%q: %d, %v", args, status, err)
		}
	}
}

func TestNemesis_EachFlowHasItsControlsAndItsSafeStrategies(t *testing.T) {
	c := app{Seed: 1, Nemesis: nemesisFlags{Count: 1}}
	names := map[string]loadtest.Verdict{}
	for _, s := range c.nemeses((&environment{}).lessons()) {
		names[s.Name()] = s.Expect
	}
	for name, want := range map[string]loadtest.Verdict{
		"inventory/naive/nemesis@1": loadtest.Violated, "inventory/redis-only/nemesis@1": loadtest.Violated, "inventory/redis+row/nemesis@1": loadtest.Safe,
		"transfer/naive/nemesis@1": loadtest.Violated, "transfer/etcd-unfenced/nemesis@1": loadtest.Violated, "transfer/etcd-fenced/nemesis@1": loadtest.Safe,
		"wallet/naive/nemesis@1": loadtest.Violated, "wallet/txn/nemesis@1": loadtest.Violated, "wallet/lockid/nemesis@1": loadtest.Safe,
	} {
		if names[name] != want {
			t.Errorf("%s: %q, want %q", name, names[name], want)
		}
	}
}

func TestCalm_LivenessIsJudgedInItAndOnlyControlsThatAreCaughtByAFaultHaveNone(t *testing.T) {
	c := app{Seed: 1, Nemesis: nemesisFlags{Count: 1}}
	lessons := (&environment{}).lessons()
	for _, s := range c.nemeses(lessons) {
		ttl := lockTTLs[s.Flow.Name]
		calm := lessons[slices.IndexFunc(lessons, func(l lesson) bool { return l.Name == s.Flow.Name })].calm(s, ttl)
		least := s.Flow.Bound(loadtest.Nemesis, ttl) + judge.RecoverMargin + time.Second
		if none := s.Expect == loadtest.Violated && s.Flow.Name != "wallet"; none != (calm == 0) || !none && calm < least {
			t.Errorf("%s: %v", s.Name(), calm)
		}
	}
}

func TestNemesis_OfSeveralRunsOnlyTheFilesOfThoseThatFailAreKept(t *testing.T) {
	for _, asExpected := range []bool{true, false} {
		c := app{Out: t.TempDir(), Rate: 200, Replicas: 3, Seed: 4, Nemesis: nemesisFlags{Count: 2, For: time.Minute}}
		s := c.nemeses((&environment{}).lessons())[1]
		file := filepath.Join(c.Out, s.Folder(), "history.jsonl")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		r := loadtest.NewResult(s, 3)
		r.AsExpected = asExpected
		var log bytes.Buffer
		if err := c.keepFailed(newProgress(&log))(&r); err != nil {
			t.Fatal(err)
		}
		const again = "bin/prove --nemesis --flow inventory --strategy naive --for 1m0s --seed 5 --rate 200"
		if _, err := os.Stat(file); (err == nil) == asExpected || !strings.Contains(log.String(), again) || !strings.Contains(r.Repeat, again) {
			t.Errorf("as expected %v: file %v, %q", asExpected, err, r.Repeat)
		}
	}
}

func TestRepeat_HasEachSettingThatTheVerdictMayDependOn(t *testing.T) {
	usual := app{Rate: 200, Replicas: 3, Seed: 4, Nemesis: nemesisFlags{Count: 1, For: time.Minute}, Limits: limitFlags{linear.TimeDefault, linear.HeapDefault >> 20}}
	patient := usual
	patient.Replicas, patient.Grace, patient.Limits = 5, 40*time.Second, limitFlags{5 * time.Minute, 2048}
	const begin = "bin/local exec -- bin/prove --nemesis --flow inventory --strategy naive --for 1m0s --seed 4 --rate 200"
	for want, c := range map[string]app{
		begin: usual,
		begin + " --replicas 5 --grace 40s --check-time 5m0s --check-heap 2048": patient,
	} {
		if got := c.repeat(c.nemeses((&environment{}).lessons())[0]); got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
}
