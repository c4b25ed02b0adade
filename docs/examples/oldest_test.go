// SPDX-License-Identifier: MIT

package examples

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"shop/locking/idempotency/pgtx/pgtest"
)

var versionRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([0-9.]+) \\|")

// taken are the folders that the test copies, with their tests.
var taken = []string{
	"locking", "locking/driver", "locking/locktest", "locking/locktest/faulty", "locking/servertest",
	"locking/servertest/daemon", "locking/servertest/daemon/mongod", "locking/combine",
	"locking/redislock", "locking/redislock/redistest", "locking/redisqueue", "locking/etcdlock", "locking/zklock", "locking/mongolock",
	"locking/pglock", "locking/pglock/migrations", "locking/mysqllock", "locking/mysqllock/migrations",
	"locking/idempotency", "locking/idempotency/pgtx", "locking/idempotency/pgtx/migrations", "locking/idempotency/pgtx/pgtest",
	"docs/examples/advisory", "docs/examples/combined", "docs/examples/guard", "docs/examples/leader", "docs/examples/redisrow",
}

// All units with their tests, in a service that has the oldest versions of the table in docs/copying.md. It needs the network,
// for modules that go.mod does not list. go vet finds what is newer than the Go of the table in the standard library too.
func TestCopying_WithTheOldestVersionsTheTestsWork(t *testing.T) {
	dir, write := serviceDir(t)
	requirements, toolchain := "", ""
	for _, row := range versionRow.FindAllStringSubmatch(read(t, page), -1) {
		if row[1] == "go" {
			toolchain = row[2]
		} else {
			requirements += "require " + row[1] + " v" + row[2] + "\n"
		}
	}
	if n := strings.Count(requirements, "\n"); n < 6 || toolchain == "" {
		t.Fatalf("%s: %d oldest versions, and %q of Go, want at least 6 and one", page, n, toolchain)
	}
	write("go.mod", "module example.org/service\n\ngo "+toolchain+"\n\n"+requirements)
	write("go.sum", "")
	for _, file := range slices.Concat(files(t, taken)...) {
		text := read(t, file)
		if strings.HasSuffix(file, ".go") {
			text = inService.ReplaceAllString(text, "${1}\"example.org/service/internal/shop/")
		}
		write(path.Join("internal/shop", file), text)
	}
	settings := []string{"GOTOOLCHAIN=go" + toolchain, "SHOP_POSTGRES_URL=" + pgtest.Schema(t)}
	for _, args := range [][]string{{"mod", "tidy"}, {"vet", "./..."}, {"test", "-vet=off", "-short", "-count=1", "-p=2", "-timeout=5m", "./..."}} {
		out, err := goWith(t, dir, settings, args...)
		if err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
		if args[0] == "test" {
			t.Logf("%s", out)
		}
	}
	got, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for requirement := range strings.Lines(requirements) { // go mod tidy raises what another module asks for
		if want := strings.TrimPrefix(strings.TrimSpace(requirement), "require "); !strings.Contains(string(got), want+"\n") {
			t.Errorf("go.mod has not %s:\n%s", want, got)
		}
	}
}
