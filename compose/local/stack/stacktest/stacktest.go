// SPDX-License-Identifier: MIT

// Package stacktest starts servers for a single test, in the stack that the tests run in.
package stacktest

import (
	"context"
	"maps"
	"testing"
	"time"

	"shop/compose/local/stack"
	"shop/locking/servertest"
)

// Private starts a server that a test may break, or all members of a cluster, and kills
// them when the test ends. As for shared servers, exec reports a private server that dies
// unexpectedly, with its last log lines.
func Private(t testing.TB, kind string) (servers []*stack.Server) {
	t.Helper()
	all, err := stack.Attach(servertest.Env(t, "SHOP_STACK"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := all.Private(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	running, err := all.Servers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range running {
		if !maps.Equal(s.Env, first.Env) {
			continue
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			if err := s.Kill(ctx); err != nil {
				t.Error(err)
			}
		})
		servers = append(servers, s)
	}
	return servers
}
