// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestPlans_ForeignKeysArePartOfTheirStatements(t *testing.T) {
	var p plans
	for _, message := range []string{
		"duration: 1.500 ms  plan:\nQuery Text: \n\t\tINSERT INTO lines\n\t\tSELECT $1\nInsert on lines  (cost=0)\nTrigger for constraint lines_a: time=0.500 calls=2\nTrigger for constraint lines_b: time=0.250 calls=2",
		"duration: 2.500 ms  plan:\nQuery Text: \n\t\tINSERT INTO lines\n\t\tSELECT $1\nInsert on lines  (cost=0)\nTrigger for constraint lines_a: time=0.500 calls=2\nTrigger for constraint lines_b: time=0.750 calls=2",
		"duration: 3.000 ms  plan:\nQuery Text: UPDATE stock\nUpdate on stock  (cost=0)",
		"duration: 1.000 ms  plan:\nQuery Text: UPDATE stock\nUpdate on stock  (cost=0)",
		"duration: 9.000 ms  plan:\nQuery Text: SELECT once\nResult  (cost=0)",
		"another notice",
	} {
		p.add(message)
	}
	var text strings.Builder
	if err := p.print(&text, 2); err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(` +`).ReplaceAllString(text.String(), " ")
	if want := `INSERT INTO lines SELECT $1 2.000
 of which lines_a 0.500
 of which lines_b 0.500
UPDATE stock 2.000
all statements 4.000
foreign keys 1.000
foreign keys: 25 % of the time of all statements
`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestExplain_HasEachForeignKeyOfABatch(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := (settings{interval: 20 * time.Millisecond}).explain(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"INSERT INTO idempotency_keys", "order_lines_order_id_fkey", "order_lines_sku_fkey", "stock_movements_sku_fkey", "stock_movements_order_id_fkey", "account, 256 clients", "INSERT INTO ledger_entries"} {
		if !strings.Contains(out.String(), "  of which "+part) && !strings.Contains(out.String(), "\n"+part) {
			t.Errorf("no %s in\n%s", part, out.String())
		}
	}
}
