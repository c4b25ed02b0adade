// SPDX-License-Identifier: MIT

package site

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"shop/loadtest/internal/testbed"
)

// ownDatabase creates a database for one test.
func ownDatabase(t *testing.T) *Database {
	t.Helper()
	db, err := CreateDatabase(t.Context(), testbed.Env(t, "SHOP_POSTGRES_URL"), fmt.Sprintf("loadtest %d %d", os.Getpid(), time.Now().UnixNano()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Drop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestWaitQuiet_ReturnsOnlyWhenNoOtherConnectionIsLeft(t *testing.T) {
	db := ownDatabase(t)
	auditor, last := testbed.Connect(t, db.URL), testbed.Connect(t, db.URL)
	if err := WaitQuiet(t.Context(), auditor, 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "1 connections are left") {
		t.Errorf("quiet, although another client is connected: %v", err)
	}
	quiet := make(chan error, 1)
	go func() { quiet <- WaitQuiet(t.Context(), auditor, QuietWait) }()
	if err := last.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-quiet; err != nil {
		t.Error(err)
	}
}
