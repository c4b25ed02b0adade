package examples

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// clients are the modules of which a lock store, or combine, imports packages, by its folder.
var clients = map[string][]string{
	"combine":   nil,
	"etcdlock":  {"go.etcd.io/etcd/api/v3", "go.etcd.io/etcd/client/v3", "google.golang.org/grpc"}, // the client's errors are those of gRPC
	"filelock":  nil,
	"mongolock": {"go.mongodb.org/mongo-driver/v2"},
	"mysqllock": {"github.com/go-sql-driver/mysql"},
	"pglock":    {"github.com/jackc/pgx/v5"},
	"redislock": {"github.com/redis/go-redis/v9"},
	"redlock":   {"github.com/redis/go-redis/v9"},
	"zklock":    {"github.com/go-zookeeper/zk"},
}

// A store and package locking are a module that depends on the client of its server alone.
func TestCopying_EachStoreNeedsOnlyItsClient(t *testing.T) {
	contracts, err := filepath.Glob(filepath.Join(repo, "locking/*/contract_test.go"))
	if err != nil || len(contracts) < 8 {
		t.Errorf("%d packages run the contract (%v), want at least 8", len(contracts), err)
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
			dir := copied(t, take)
			stripped(t, dir, "")
			if out, err := goCommand(t, dir, "", "vet", "./..."); err != nil {
				t.Fatalf("go vet: %v\n%s", err, out)
			}
			out, err := goCommand(t, dir, "", "list", "-f", `{{join .Imports "\n"}}`, "./...")
			if err != nil {
				t.Fatalf("go list: %v\n%s", err, out)
			}
			unused := slices.Clone(want)
			for _, imported := range strings.Fields(out) {
				if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") || strings.HasPrefix(imported, module+"/") {
					continue // of the standard library, or of the module
				}
				of := func(client string) bool { return imported == client || strings.HasPrefix(imported, client+"/") }
				if !slices.ContainsFunc(want, of) {
					t.Errorf("it imports %s", imported)
				}
				unused = slices.DeleteFunc(unused, of)
			}
			if len(unused) > 0 {
				t.Errorf("it does not import %q", unused)
			}
		})
	}
}

var importOfShop = regexp.MustCompile(`\t"shop/[^"]*"\n`)

// The tests of a store need only packages below locking, so that they can be copied with it.
func TestCopying_TheTestsOfEachStoreNeedOnlyLocking(t *testing.T) {
	for store := range clients {
		for _, file := range files(t, []string{path.Join("locking", store)})[0] {
			for _, imported := range importOfShop.FindAllString(read(t, file), -1) {
				if !strings.HasPrefix(imported, "\t\"shop/locking") {
					t.Errorf("%s imports %s", file, strings.TrimSpace(imported))
				}
			}
		}
	}
}
