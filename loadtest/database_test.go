package loadtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresURL is the server that tests use.
func postgresURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("SHOP_POSTGRES_URL")
	if url == "" {
		t.Fatal("SHOP_POSTGRES_URL is not set: run the tests with `make test`, or `go run ./compose/local exec -- go test ./...`")
	}
	return url
}

// openShop gives a connection to a schema of its own, in which a flow's tables
// are. It reads the migrations as files: this package checks the shop from
// outside and imports nothing of it.
func openShop(t *testing.T, flow string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), postgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	schema := fmt.Sprintf("loadtest_%d_%d", os.Getpid(), time.Now().UnixNano())
	t.Cleanup(func() { // t.Context is over by now
		must(t, conn, context.Background(), "DROP SCHEMA "+schema+" CASCADE")
		_ = conn.Close(context.Background())
	})
	must(t, conn, t.Context(), "CREATE SCHEMA "+schema)
	must(t, conn, t.Context(), "SET search_path = "+schema)
	for _, up := range migrations(t, flow) {
		must(t, conn, t.Context(), up)
	}
	return conn
}

// migrations are the Up halves of the migration files that a flow needs, in order.
func migrations(t *testing.T, flow string) []string {
	t.Helper()
	var files []string
	for _, dir := range []string{"../locking/idempotency/pgtx", "../" + flow} {
		found, err := filepath.Glob(dir + "/migrations/*.sql")
		if err != nil || len(found) == 0 {
			t.Fatalf("no migrations in %s: %v", dir, err)
		}
		files = append(files, found...)
	}
	var ups []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		up, _, _ := strings.Cut(string(text), "-- +goose Down")
		ups = append(ups, up)
	}
	return ups
}

func must(t *testing.T, conn *pgx.Conn, ctx context.Context, sql string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
		t.Fatalf("%v in:\n%s", err, sql)
	}
}
