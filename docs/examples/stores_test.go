// SPDX-License-Identifier: MIT

package examples

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// clients are the modules of which a lock store, or combine, imports packages, by its folder.
var clients = map[string][]string{
	"combine":    nil,
	"etcdlock":   {"go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc"}, // the client's errors are those of gRPC
	"filelock":   nil,
	"mongolock":  {"go.mongodb.org/mongo-driver/v2"},
	"mysqllock":  {"github.com/go-sql-driver/mysql"},
	"pglock":     {"github.com/jackc/pgx/v5"},
	"redislock":  {"github.com/redis/go-redis/v9"},
	"redisqueue": {"github.com/redis/go-redis/v9"},
	"zklock":     {"github.com/go-zookeeper/zk"},
}

// suite are the modules that only tests, locktest and servertest import. zap is the logger of etcd's client.
var suite = []string{"github.com/jackc/pgx/v5", "go.uber.org/goleak", "go.uber.org/zap"}

// A store and package locking build in a module that depends on the client of its server alone. Their tests and
// the suite compile in a copy too; those of combine, which need no server, run there.
func TestCopying_EachStoreNeedsOnlyItsClient(t *testing.T) {
	contracts, err := filepath.Glob(filepath.Join(repo, "locking/*/contract_test.go"))
	if err != nil || len(contracts) < 7 {
		t.Errorf("%d packages run the contract (%v), want at least 7", len(contracts), err)
	}
	for _, file := range contracts {
		if store := filepath.Base(filepath.Dir(file)); !slices.Contains(slices.Collect(maps.Keys(clients)), store) {
			t.Errorf("%s is not listed here", store)
		}
	}
	slots := make(chan struct{}, 2)
	for store, want := range clients {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			slots <- struct{}{}
			defer func() { <-slots }()
			take := []string{"locking", path.Join("locking", store)}
			if tables, _ := filepath.Glob(filepath.Join(repo, take[1], "migrations")); len(tables) > 0 {
				take = append(take, path.Join(take[1], "migrations"))
			}
			if uses(t, take[1], "locking/driver") {
				take = append(take, "locking/driver")
			}
			if store != "combine" { // whose tests need no suite
				take = append(take, "locking/locktest", "locking/locktest/faulty", "locking/servertest", "locking/servertest/daemon")
			}
			if uses(t, take[1], "locking/servertest/daemon/mongod") {
				take = append(take, "locking/servertest/daemon/mongod")
			}
			if strings.HasPrefix(store, "redis") {
				take = append(take, "locking/redislock/redistest")
			}
			if store == "redisqueue" {
				take = append(take, "locking/redislock")
			}
			dir := copied(t, take)
			testsCompile(t, dir, store, slices.Concat(want, suite))
			stripped(t, dir, "")
			imported, unused := outside(imports(t, dir, ".Imports")), slices.Clone(want)
			for _, pkg := range imported {
				if !slices.ContainsFunc(want, contains(pkg)) {
					t.Errorf("it imports %s", pkg)
				}
				unused = slices.DeleteFunc(unused, contains(pkg))
			}
			if len(unused) > 0 {
				t.Errorf("it does not import %q", unused)
			}
			requireOnly(t, dir, imported)
			if out, err := goCommand(t, dir, "", "build", "./..."); err != nil {
				t.Errorf("with nothing but its client: go build: %v\n%s", err, out)
			}
		})
	}
}

// uses reports whether a package of the repository imports another one.
func uses(t *testing.T, folder, other string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repo, folder, "*.go"))
	if err != nil || files == nil {
		t.Fatalf("%q, %v", files, err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		text, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(text), `"shop/`+other+`"`)
	})
}

// testsCompile vets the copy of a store with its tests, and runs those of combine.
func testsCompile(t *testing.T, dir, store string, may []string) {
	t.Helper()
	if out, err := goCommand(t, dir, "", "vet", "./..."); err != nil {
		t.Errorf("with its tests: go vet: %v\n%s", err, out)
	}
	for _, pkg := range outside(imports(t, dir, ".TestImports", ".XTestImports")) {
		if !slices.ContainsFunc(may, contains(pkg)) {
			t.Errorf("its tests import %s", pkg)
		}
	}
	if store == "combine" { // Mutants change files of the package and run its tests again, for a minute
		out, err := goCommand(t, dir, "", "test", "-vet=off", "-count=1", "-skip=Mutants", "./locking/combine")
		if err != nil || !strings.Contains(out, "ok  \t"+module+"/locking/combine") {
			t.Errorf("go test: %v\n%s", err, out)
		}
	}
}

// imports returns what the packages in dir import, from these fields of go list.
func imports(t *testing.T, dir string, fields ...string) []string {
	t.Helper()
	format := ""
	for _, field := range fields {
		format += `{{join ` + field + ` "\n"}}{{"\n"}}`
	}
	out, err := goCommand(t, dir, "", "list", "-f", format, "./...")
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	return slices.Compact(slices.Sorted(slices.Values(strings.Fields(out))))
}

// outside returns the packages that are not of the standard library nor of the copy.
func outside(imported []string) (packages []string) {
	for _, pkg := range imported {
		if first, _, _ := strings.Cut(pkg, "/"); strings.Contains(first, ".") && !strings.HasPrefix(pkg, module+"/") {
			packages = append(packages, pkg)
		}
	}
	return packages
}

// contains reports of a module whether a package is in it.
func contains(pkg string) func(module string) bool {
	return func(module string) bool { return pkg == module || strings.HasPrefix(pkg, module+"/") }
}

// requireOnly reduces the requirements of the copy in dir to the modules of these packages, and what those need.
func requireOnly(t *testing.T, dir string, packages []string) {
	t.Helper()
	text := "module " + module + "\n\ngo 1.26.0\n"
	if len(packages) > 0 {
		out, err := goCommand(t, dir, "", append([]string{"list", "-deps", "-f", "{{with .Module}}require {{.Path}} {{.Version}}{{end}}"}, packages...)...)
		if err != nil {
			t.Fatalf("go list: %v\n%s", err, out)
		}
		lines := strings.Split(out, "\n")
		slices.Sort(lines)
		text += strings.Join(slices.Compact(lines), "\n") + "\n"
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
