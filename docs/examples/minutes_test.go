// SPDX-License-Identifier: MIT

package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"shop/locking/servertest"
)

// The steps of docs/copying.md, typed beside this repository as the page says, without the network.
func TestCopying_TheStepsOfFiveMinutesWork(t *testing.T) {
	t.Parallel()
	blocks := typedBlocks(read(t, page), "docs/examples/minutes_test.go")
	if len(blocks) != 6 {
		t.Fatalf("%d blocks are typed, want 6", len(blocks))
	}
	dir := checkout(t)
	env := append(withoutServers(dir), "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local", "PWD="+dir)
	checkTyped(t, dir, env, blocks, strings.NewReplacer())
}

// The commands of docs/ci.md for a shop of this repository without Docker: it passes.
func TestCI_TheGateWithoutDockerPasses(t *testing.T) {
	blocks := typedBlocks(read(t, "docs/ci.md"), "docs/examples/minutes_test.go")
	if len(blocks) != 1 {
		t.Fatalf("%d blocks are typed, want 1", len(blocks))
	}
	var lines []line
	for range 3 { // a machine that is too busy to send the load in time proves nothing
		dir, api := checkout(t), servertest.FreeAddr(t)
		env := append(withoutServers(dir), "GOPROXY=off", "SHOP_LISTEN="+api, "SHOP_METRICS_LISTEN=127.0.0.1:0", "GITHUB_STEP_SUMMARY=")
		lines = typed(t, filepath.Join(dir, "shop"), env, blocks, strings.NewReplacer("127.0.0.1:8080", api))
		if !slices.ContainsFunc(lines, func(l line) bool { return strings.Contains(l.printed, "the generator lagged") }) {
			break
		}
	}
	checkPrinted(t, lines)
}

// checkout copies this repository to the folder shop of an empty folder, without what is built. The servers that
// `local up` starts with withoutServers of that folder are stopped with the test.
func checkout(t *testing.T) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "typed") // for the sockets of servers t.TempDir is too long, and not for other users
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stacks, _ := filepath.Glob(filepath.Join(dir, "shop-stack*"))
		for _, stack := range stacks {
			down := exec.Command(filepath.Join(dir, "shop/bin/local"), "down")
			down.Env = append(withoutServers(dir), "SHOP_STACK="+stack)
			out, err := down.CombinedOutput()
			t.Errorf("the page has left %s: %s %v", stack, out, err)
		}
		_ = os.RemoveAll(dir)
	})
	entries, err := os.ReadDir(repo)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "shop"), 0o755); err != nil {
		t.Fatal(err)
	}
	copying := []string{"-R"}
	for _, entry := range entries {
		if !slices.Contains([]string{".git", "bin", "report"}, entry.Name()) {
			copying = append(copying, filepath.Join(repo, entry.Name()))
		}
	}
	if out, err := exec.CommandContext(t.Context(), "cp", append(copying, filepath.Join(dir, "shop"))...).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	return dir
}

// withoutServers is the environment without the servers of the tests: `local up` starts others, in a folder of dir.
func withoutServers(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(setting string) bool { return strings.HasPrefix(setting, "SHOP_") })
	return append(env, "TMPDIR="+dir)
}
