// SPDX-License-Identifier: MIT

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// pinned is an action at a commit, with its tag in a comment.
var pinned = regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+\b`)

func TestWorkflows_PinActionsAndNameWhatExists(t *testing.T) {
	known, services := commands(t), composeServices(t)
	for _, file := range []string{".github/workflows/ci.yaml", "loadtest/examples/workflow.yml"} {
		text, err := os.ReadFile(filepath.Join(repo, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range workflow(string(text), known, services) {
			t.Errorf("%s: %s", file, wrong)
		}
	}
}

var (
	action  = regexp.MustCompile(`(?m)uses: (.*)$`)
	folders = regexp.MustCompile(`\s\./([\w/]+)`)
	script  = regexp.MustCompile(`(?m)^\s*- run: ([\w.-]+/\S+)`) // of this repository, unless it was built before
	service = regexp.MustCompile(`docker compose (?:run --rm|ps -q) (\w+)`)
)

// workflow returns what is wrong with a workflow.
func workflow(text string, known map[string]bool, services []string) (wrong []string) {
	uses := action.FindAllStringSubmatch(text, -1)
	if len(uses) == 0 {
		wrong = append(wrong, "it uses no action")
	}
	for _, m := range uses {
		if !pinned.MatchString(m[1]) {
			wrong = append(wrong, "not pinned: "+m[1])
		}
	}
	for _, m := range script.FindAllStringSubmatch(text, -1) {
		if _, err := os.Stat(filepath.Join(repo, m[1])); err != nil && !strings.HasPrefix(m[1], "bin/") {
			wrong = append(wrong, err.Error())
		}
	}
	for line := range strings.Lines(text) {
		wrong = append(wrong, unknown([]string{strings.TrimPrefix(strings.TrimSpace(line), "- run: ")}, known)...)
		for _, m := range folders.FindAllStringSubmatch(line, -1) {
			if _, err := os.Stat(filepath.Join(repo, m[1])); err != nil {
				wrong = append(wrong, err.Error())
			}
		}
		for _, m := range service.FindAllStringSubmatch(line, -1) {
			if !slices.Contains(services, m[1]) {
				wrong = append(wrong, "compose.yaml has no service "+m[1])
			}
		}
	}
	return wrong
}

// composeServices returns the services of compose.yaml.
func composeServices(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repo, "compose/compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Services map[string]yaml.Node }
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Services) == 0 {
		t.Fatalf("%d services, %v", len(file.Services), err)
	}
	for name := range file.Services {
		names = append(names, name)
	}
	return names
}

// The negative control.
func TestWorkflow_NoticesMistakes(t *testing.T) {
	known := map[string]bool{"make prove": true, "prove --target": true}
	good := "      - uses: a/b@" + strings.Repeat("0a", 20) + " # v5.0.0\n      - run: make prove\n      - run: .ci/run\n" +
		"      - run: bin/prove --target x\n      - run: docker compose run --rm prove && go test ./docs\n"
	if wrong := workflow(good, known, []string{"prove"}); len(wrong) != 0 {
		t.Errorf("%q", wrong)
	}
	for old, changed := range map[string]string{
		" # v5.0.0": "", "0a": "v5 ", "make prove": "make proof", ".ci/run": ".ci/runs", "--target": "--goal", "--rm prove": "--rm proof", "./docs": "./dogs",
	} {
		if wrong := workflow(strings.Replace(good, old, changed, 1), known, []string{"prove"}); len(wrong) == 0 {
			t.Errorf("%q for %q: not noticed", changed, old)
		}
	}
	if wrong := workflow("jobs: {}\n", known, nil); len(wrong) != 1 {
		t.Errorf("%q", wrong)
	}
}
