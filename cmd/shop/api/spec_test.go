// SPDX-License-Identifier: MIT

package api

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"shop/inventory"
	"shop/locking/idempotency/pgtx"
	"shop/transfer"
	"shop/wallet"
)

func TestSpec_IsValidAndListsExactlyTheServedRoutes(t *testing.T) {
	spec, err := GetSpec()
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Validate(t.Context()); err != nil {
		t.Errorf("openapi.yaml: %v", err)
	}
	ops, err := operations()
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Sorted(maps.Keys(ops))
	var got []string
	for _, r := range unconnected(t).echo.Routes() {
		got = append(got, r.Method+" "+r.Path)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("routes:\n%q\nin the spec:\n%q", got, want)
	}
}

func TestSpec_OnlyProbesArePublicAndOnlyTheAuditIsForAdministrators(t *testing.T) {
	ops, err := operations()
	if err != nil {
		t.Fatal(err)
	}
	for name, op := range ops {
		if public := name == "GET /livez" || name == "GET /readyz"; op.public != public {
			t.Errorf("%s: public %t", name, op.public)
		}
		if admin := name == "GET /v1/audit"; op.admin != admin {
			t.Errorf("%s: admin %t", name, op.admin)
		}
	}
}

func TestSpec_TheGeneratedCodeIsUpToDate(t *testing.T) {
	want, err := os.ReadFile("api.gen.go")
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "api.gen.go")
	for _, args := range [][]string{{"oapi-codegen", "-config", "oapi-codegen.yaml", "-o", out, "openapi.yaml"}, {"gofumpt", "-w", out}} {
		if text, err := exec.Command("go", append([]string{"tool"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if got, err := os.ReadFile(out); err != nil || string(got) != string(want) {
		t.Errorf("api.gen.go is not what openapi.yaml says (%v): run go generate ./cmd/shop/api", err)
	}
}

func TestNew_RefusesAConfigThatLacksSomething(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("a server of nothing")
	}
	config := unconnected(t).cfg
	if _, err := New(config); err == nil {
		t.Error("metrics that are registered already")
	}
}

// unconnected returns a Server whose pool never connects, for tests that need no request
// or no domain.
func unconnected(t testing.TB, settings ...func(*Config)) *Server {
	t.Helper()
	connections, err := pgtx.PoolConfig("postgres://shop@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), connections)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	cfg := Config{
		Pool: pool, Orders: func(string) (Buyer, error) { return nil, nil }, Catalog: (*inventory.Service)(nil),
		Books: (*transfer.Service)(nil), Transfers: (*transfer.Service)(nil).With, Wallets: (*wallet.Service)(nil).With,
		Ready: func(context.Context) (Degraded, error) { return Degraded{}, nil },
		Audit: func(context.Context) (map[string]map[string]int64, error) { return nil, nil },
		Log:   slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: prometheus.NewRegistry(),
	}
	for _, set := range settings {
		set(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
