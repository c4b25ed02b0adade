// SPDX-License-Identifier: MIT

package examples

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	shown  = regexp.MustCompile("(?s)```text\n(.*?)```\n")
	anID   = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	moment = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`)
)

// The blocks of docs/walkthrough.md run in one shell, as a reader types them, and print all that the page shows, and
// no more.
func TestWalkthrough_EachBlockPrintsWhatThePageShows(t *testing.T) {
	page := read(t, "docs/walkthrough.md")
	blocks, outputs := typedBlocks(page, "docs/examples/walkthrough_test.go"), shown.FindAllStringSubmatch(page, -1)
	if n := strings.Count(page, "```sh\n"); n < 10 || len(blocks) != n || len(outputs) != n {
		t.Fatalf("%d blocks, %d of them typed, %d outputs", n, len(blocks), len(outputs))
	}
	const end = "\x1e"
	script := ""
	for _, block := range blocks {
		script += strings.Join(block, "\n") + "\nprintf '\\x1e'\n"
	}
	r := startLab(t)
	shell := exec.CommandContext(t.Context(), "bash", "-c", script)
	shell.Dir, shell.Env = t.TempDir(), append(r.env, "API="+r.api)
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	printed := strings.Split(string(out), end)
	if len(printed) != len(blocks)+1 {
		t.Fatalf("%d outputs of %d blocks\n%s", len(printed)-1, len(blocks), out)
	}
	for i, output := range outputs {
		got := moment.ReplaceAllString(anID.ReplaceAllString(printed[i], "<id>"), "<time>")
		if diff := cmp.Diff(output[1], got); diff != "" {
			t.Errorf("%s\n(-shown +printed)\n%s", strings.Join(blocks[i], "\n"), diff)
		}
	}
}
