package main

import (
	"strings"
	"testing"
)

func TestAudit_PrintsEachInvariantAndFailsWithTheIDsOfWhatBreaksOne(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	out, err := shop(t, "audit", "--postgres-url", databaseURL)
	if err != nil || !strings.Contains(out, "S1") || !strings.Contains(out, "I-ONCE") {
		t.Fatalf("a new shop: %v\n%s", err, out)
	}
	execute(t, databaseURL, `UPDATE products SET stock = stock - 1 WHERE sku = 'tea'`)
	out, err = shop(t, "audit", "--postgres-url", databaseURL)
	if exitCode(err) != 1 || !strings.Contains(out, "tea") {
		t.Errorf("a unit is missing: exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

func TestAudit_CountsMoneyThatIsMissing(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	out, err := shop(t, "audit", "--postgres-url", databaseURL)
	if err != nil || !strings.Contains(out, "transfer   T1 ") || !strings.Contains(out, "transfer   T3 ") {
		t.Fatalf("a new shop: %v\n%s", err, out)
	}
	alice := accounts(t, databaseURL)["alice"]
	execute(t, databaseURL, `UPDATE accounts SET balance = balance - 1 WHERE id = $1`, alice)
	out, err = shop(t, "audit", "--postgres-url", databaseURL)
	if exitCode(err) != 1 || !strings.Contains(out, alice) {
		t.Errorf("a cent is missing: exit status %d, %v\n%s", exitCode(err), err, out)
	}
}

func TestAudit_ADatabaseWithoutTablesIsNoPass(t *testing.T) {
	if out, err := shop(t, "audit", "--postgres-url", newSchema(t)); exitCode(err) != 2 {
		t.Errorf("exit status %d, %v\n%s", exitCode(err), err, out)
	}
}
