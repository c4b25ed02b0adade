// SPDX-License-Identifier: MIT

// Package prometheus_test checks the rules and the dashboards with the real Prometheus.
package prometheus_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// rules is a file of rules, without what the tests do not read.
type rules struct {
	Groups []struct {
		Rules []struct {
			Alert       string
			Annotations map[string]string
		}
	}
}

// alerts returns the names of the alerts in alerts.yaml.
func alerts(t *testing.T) (names []string) {
	t.Helper()
	var file rules
	if err := yaml.Unmarshal([]byte(read(t, "alerts.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if rule.Alert == "" {
				continue
			}
			names = append(names, rule.Alert)
			if want := "docs/operations.md#" + strings.ToLower(rule.Alert); rule.Annotations["runbook_url"] != want ||
				rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" {
				t.Errorf("%s needs a summary, a description, and the runbook_url %s", rule.Alert, want)
			}
		}
	}
	return names
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestAlerts_AreTheFourOfThePatterns(t *testing.T) {
	want := []string{"ShopLockFailureRate", "ShopLockHoldTime", "ShopLockTimeouts", "ShopLockStoreUnavailable"}
	if got := alerts(t); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// promtool runs alerts_test.yaml on the rules in a folder of their own.
func promtool(t *testing.T, rules string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"alerts.yaml": rules, "alerts_test.yaml": read(t, "alerts_test.yaml")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "promtool", "test", "rules", "alerts_test.yaml")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAlerts_FireWhenTheyMust(t *testing.T) {
	if out, err := promtool(t, read(t, "alerts.yaml")); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// alterations are errors that alerts_test.yaml must find.
var alterations = [][2]string{
	{`> 0.05`, `> 0.07`},
	{`> 0.05`, `> 0.03`},
	{`{kind=~"timed_out|failed"}`, `{kind=~"timed_out|failed|busy"}`},
	{`{kind=~"timed_out|failed"}`, `{kind=~"timed_out|failed|renew_failed"}`},
	{`for: 5m`, `for: 0m`},
	{`3 * shop`, `4 * shop`},
	{`> 10`, `> 13`},
	{`> 10`, `> 8`},
	{`< 0.999`, `< 0.998`},
	{`< 0.999`, `< 0.9999`},
	{`"redis|etcd"`, `"redis|etcd|mongo"`},
	{`avg by (server)`, `max by (server)`},
}

func TestAlerts_TheirTestFindsAWrongThreshold(t *testing.T) {
	good := read(t, "alerts.yaml")
	for _, change := range alterations {
		if !strings.Contains(good, change[0]) {
			t.Errorf("alerts.yaml has no %s", change[0])
			continue
		}
		if out, err := promtool(t, strings.ReplaceAll(good, change[0], change[1])); err == nil {
			t.Errorf("%s instead of %s is not found:\n%s", change[1], change[0], out)
		}
	}
}

var (
	windows = regexp.MustCompile(`\[\d+[mh]\]`)
	fors    = regexp.MustCompile(`for: \d+m`)
)

// fast returns the rules with all windows and waits replaced, so that a test need not wait for
// hours. Expressions and thresholds stay as they are.
func fast(rules string) string {
	return fors.ReplaceAllLiteralString(windows.ReplaceAllLiteralString(rules, "[10s]"), "for: 1s")
}
