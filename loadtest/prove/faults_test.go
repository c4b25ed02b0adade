package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		"one":           {[]string{good}, asExpected, 1},
		"two":           {[]string{good, good}, asExpected, 2},
		"an other flow": {[]string{report("other.json", "cinema")}, couldNotRun, 0},
		"no file":       {[]string{filepath.Join(folder, "none")}, couldNotRun, 0},
		"no name":       {nil, couldNotRun, 0},
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
