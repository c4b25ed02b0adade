// SPDX-License-Identifier: MIT

package inventory_test

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"shop/inventory"
	"shop/locking/invariant"
)

// broken lists the violations. It does not check whether a refusal has an order: the tests
// use the default Encode, which stores no status.
func (s *shop) broken() (list []string) {
	s.T.Helper()
	checks := slices.DeleteFunc(slices.Clone(inventory.Invariants.Checks), func(c invariant.Check) bool { return c.Name == "I-ONCE answers" })
	findings, err := invariant.Run(context.Background(), append(checks, invariant.Check{
		Name: "key", Invariant: "key", Means: "order without a key", Query: `
			SELECT o.id::text
			FROM orders o
			LEFT JOIN idempotency_keys k ON k.client_id = o.client_id AND k.key = o.idempotency_key
			WHERE k.key IS NULL`,
	}), invariant.SQL[pgx.Rows](s.Pool))
	if err != nil {
		s.T.Fatal(err)
	}
	for name, f := range findings {
		if f.Count > 0 {
			list = append(list, fmt.Sprintf("%s: %v", name, f.IDs))
		}
	}
	return list
}

// mustHold fails the test if an invariant is broken.
func (s *shop) mustHold() {
	s.T.Helper()
	for _, b := range s.broken() {
		s.T.Error(b)
	}
}
