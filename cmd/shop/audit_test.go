package main

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestAudit_PrintsEachInvariantAndFailsWithTheIDsOfWhatBreaksOne(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	out, err := shop(t, "audit", "--postgres-url", databaseURL)
	if err != nil || !strings.Contains(out, "S1") || !strings.Contains(out, "I-ONCE") {
		t.Fatalf("a new shop: %v\n%s", err, out)
	}
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `UPDATE products SET stock = stock - 1 WHERE sku = 'tea'`); err != nil {
		t.Fatal(err)
	}
	out, err = shop(t, "audit", "--postgres-url", databaseURL)
	if exitCode(err) != 1 || !strings.Contains(out, "tea") {
		t.Errorf("a unit is missing: exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

func TestAudit_ADatabaseWithoutTablesIsNoPass(t *testing.T) {
	if out, err := shop(t, "audit", "--postgres-url", newSchema(t)); exitCode(err) != 2 {
		t.Errorf("exit status %d, %v\n%s", exitCode(err), err, out)
	}
}
