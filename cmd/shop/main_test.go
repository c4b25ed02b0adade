// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"shop/locking/idempotency/pgtx/pgtest"
)

// asShop makes the test binary run the program itself, for tests that need a child process.
const asShop = "SHOP_TEST_AS_SHOP"

func TestMain(m *testing.M) {
	if os.Getenv(asShop) != "" {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// shop runs the program, and returns its output.
func shop(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out lines
	err := runWith(t.Context(), args, &out, &out)
	return out.String(), err
}

// runWith is run with a log to any writer.
func runWith(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	log := newLogWriter(stderr)
	defer log.close()
	return run(ctx, args, stdout, log)
}

// newDatabase returns a new schema, migrated and seeded.
func newDatabase(t *testing.T) (databaseURL string, keys map[string]string) {
	t.Helper()
	databaseURL = pgtest.Schema(t)
	if out, err := shop(t, "migrate", "--postgres-url", databaseURL); err != nil {
		t.Fatal(out, err)
	}
	out, err := shop(t, "seed", "--postgres-url", databaseURL)
	if err != nil {
		t.Fatal(out, err)
	}
	return databaseURL, readSeed(out, "KEY")
}

// readSeed finds the variables SHOP_KIND_NAME in what seed printed.
func readSeed(out, kind string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(out) {
		assignment, ok := strings.CutPrefix(strings.TrimSpace(line), "export SHOP_"+kind+"_")
		if name, value, is := strings.Cut(assignment, "="); ok && is {
			values[strings.ToLower(name)] = value
		}
	}
	return values
}

// accounts returns the demo's accounts, which seed prints each time.
func accounts(t *testing.T, databaseURL string) map[string]string {
	t.Helper()
	out, err := shop(t, "seed", "--postgres-url", databaseURL)
	if err != nil {
		t.Fatal(out, err)
	}
	return readSeed(out, "ACCOUNT")
}

// query reads one number from the database.
func query(t *testing.T, databaseURL, sql string, args ...any) (n int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// execute changes the database.
func execute(t *testing.T, databaseURL, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// lines is an output that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// find finds a line of the log by its message.
func (l *lines) find(message string) map[string]any {
	for text := range strings.Lines(l.String()) {
		var line map[string]any
		if json.Unmarshal([]byte(text), &line) == nil && line["msg"] == message {
			return line
		}
	}
	return nil
}
