// SPDX-License-Identifier: MIT

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"shop/loadtest"
)

func TestFaults_PrintsATableForEachReport(t *testing.T) {
	t.Setenv("SHOP_POSTGRES_URL", "")
	folder := t.TempDir()
	report := func(name, flow string) string {
		file := filepath.Join(folder, name)
		text := `{"scenarios": [{"flow": "` + flow + `", "strategy": "lockid", "fault": "commit-unknown", "expect": "safe",
			"verdict": "safe", "as_expected": true, "requests": 334, "reads": 626, "evidence": {"commits_cut": 19}}]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	good := report("good.json", "wallet")
	for name, c := range map[string]struct {
		args         []string
		status, rows int
	}{
		"one":          {[]string{good}, asExpected, 1},
		"two":          {[]string{good, good}, asExpected, 2},
		"another flow": {[]string{report("other.json", "cinema")}, couldNotRun, 0},
		"no file":      {[]string{filepath.Join(folder, "none")}, couldNotRun, 0},
		"no name":      {nil, couldNotRun, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			status, err := run(t.Context(), append([]string{"faults"}, c.args...), &out, t.Output())
			rows := strings.Count(out.String(), "| wallet, lockid | commit-unknown | connections cut after their commit was delivered: 19 | 334, 626 | safe |\n")
			if status != c.status || rows != c.rows || (err == nil) != (status == asExpected) {
				t.Errorf("exit status %d, %v\n%s", status, err, out.String())
			}
		})
	}
}

// docs/faults.md has a row, as the command prints it, for each fault of each flow. The crash matrix has a table of its own.
func TestFaults_ThePageHasEachOfThem(t *testing.T) {
	page, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, l := range (&environment{}).lessons() {
		for _, spec := range l.Faults {
			if spec.Fault == loadtest.NoFault || spec.Apart {
				continue
			}
			row := regexp.MustCompile(`(?m)^\| ` + l.Name + `, [\w+-]+ \| ` + string(spec.Fault) + ` \| [^|]+: [\d,]+[^|]* \| [\d,]+, [\d,]+ \| safe \|$`)
			if rows++; !row.Match(page) {
				t.Errorf("docs/faults.md has no row of a safe strategy for %s of %s", spec.Fault, l.Name)
			}
		}
	}
	if rows < 20 {
		t.Errorf("%d faults: this tests nothing", rows)
	}
}
