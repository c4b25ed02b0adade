// SPDX-License-Identifier: MIT

package api

import (
	"errors"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/uuid"

	"shop/inventory"
	"shop/locking/idempotency"
	"shop/wallet"
)

func TestParseKey_DistinguishesAMissingKeyFromAMalformedOne(t *testing.T) {
	for header, want := range map[string]error{
		"":     errMissingKey,
		"  \t": errMissingKey,
		`""`:   errMalformed,
		`"abc`: errMalformed,
		"a\tb": errMalformed,
	} {
		if got, err := parseKey(header); !errors.Is(err, want) {
			t.Errorf("parseKey(%q) = %q, %v; want %v", header, got, err, want)
		}
	}
}

// keySchema is the schema of a key in openapi.yaml.
func keySchema(tb testing.TB) *openapi3.Schema {
	tb.Helper()
	spec, err := GetSpec()
	if err != nil {
		tb.Fatal(err)
	}
	return spec.Components.Parameters["IdempotencyKey"].Value.Schema.Value
}

func TestParseKey_AgreesWithTheSpec(t *testing.T) {
	schema := keySchema(t)
	for _, header := range []string{
		"", `""`, `"`, "k", "k ", " k", "a b", `a"b`, `a\b`, `"a"b`, `"a\b"`, `"a\"`, `"a\\"`, "a\tb", "a\x7fb", "schlüssel", "k\n", long(255), long(256), long(512),
		`"` + long(255) + `"`, `"` + long(256) + `"`, `"` + strings.Repeat(`\"`, 255) + `"`, `"` + strings.Repeat(`\"`, 256) + `"`, `" a "`, `"a" ;p`,
	} {
		checkKey(t, schema, header)
	}
}

// checkKey trims the header first, as net/http does.
func checkKey(t *testing.T, schema *openapi3.Schema, header string) {
	t.Helper()
	header = strings.Trim(header, " \t")
	_, err := parseKey(header)
	if spec := schema.VisitJSONString(header); (err == nil) != (spec == nil) {
		t.Errorf("%q: the server says %v, openapi.yaml %v", header, err, spec)
	}
}

func long(n int) string { return strings.Repeat("k", n) }

func FuzzParseKey(f *testing.F) {
	for _, seed := range []string{`a`, `"a"`, `"a\"b"`, `"`, ``, `"\\"`} {
		f.Add(seed)
	}
	schema := keySchema(f)
	f.Fuzz(func(t *testing.T, header string) {
		checkKey(t, schema, header)
	})
}

func TestFingerprint_CoversTheIntentAndNotItsSpelling(t *testing.T) {
	a, b := inventory.Line{SKU: "a", Quantity: 1}, inventory.Line{SKU: "b", Quantity: 2}
	one := mustPrint(t)(fingerprintOrder([]inventory.Line{a, b}))
	if two := mustPrint(t)(fingerprintOrder([]inventory.Line{b, a})); one != two {
		t.Error("the order of the lines makes another intent")
	}
	for _, other := range [][]inventory.Line{
		{a}, {a, {SKU: "b", Quantity: 3}}, {a, {SKU: "c", Quantity: 2}}, {{SKU: "a", Quantity: 2}, {SKU: "b", Quantity: 1}},
	} {
		if mustPrint(t)(fingerprintOrder(other)) == one {
			t.Errorf("%v has the fingerprint of another intent", other)
		}
	}
	id := uuid.New()
	cancel := mustPrint(t)(fingerprintCancel(id))
	if cancel == mustPrint(t)(fingerprintCancel(uuid.New())) {
		t.Error("two orders have one fingerprint")
	}
	credit := mustPrint(t)(fingerprintCredit(id, 1))
	for name, other := range map[string][32]byte{
		"another wallet": mustPrint(t)(fingerprintCredit(uuid.New(), 1)),
		"another amount": mustPrint(t)(fingerprintCredit(id, 2)),
		"a debit":        mustPrint(t)(fingerprintDebit(id, 1)),
		"a payment":      mustPrint(t)(fingerprintPayment(wallet.Payment{From: id, Amount: 1})),
	} {
		if other == credit {
			t.Errorf("%s has the fingerprint of another intent", name)
		}
	}
	if other, err := idempotency.Fingerprint("POST /v1/orders", id); err != nil || other == cancel {
		t.Errorf("the route does not count: %v", err)
	}
}

func mustPrint(t *testing.T) func([32]byte, error) [32]byte {
	return func(sum [32]byte, err error) [32]byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
}
