package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"shop/locking/idempotency/pgtx/pgtest"
)

// The steps of docs/copying.md, typed beside this repository as the page says, without the network.
func TestCopying_TheStepsOfFiveMinutesWork(t *testing.T) {
	blocks := typedBlocks(read(t, page), "docs/examples/minutes_test.go")
	if len(blocks) != 5 {
		t.Fatalf("%d blocks are typed, want 5", len(blocks))
	}
	here, err := filepath.Abs(repo)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(here, filepath.Join(dir, "shop")); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOPROXY=off", "GOWORK=off", "GOTOOLCHAIN=local", "PWD="+dir, "SHOP_POSTGRES_URL="+pgtest.Schema(t))
	checkTyped(t, dir, env, blocks, strings.NewReplacer())
}
