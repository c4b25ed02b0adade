// SPDX-License-Identifier: MIT

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The deployed program contains no load generator, no local stack, no browser, and nothing to change or watch it from outside.
func TestDependencies_TheServerContainsNothingOfItsProof(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil || !strings.Contains(string(out), "shop/inventory\n") {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for name := range strings.Lines(string(out)) {
		for _, part := range []string{"shop/loadtest", "shop/compose", "vegeta", "chromedp", "toxiproxy", "gofail", "net/http/pprof"} {
			if strings.Contains(name, part) {
				t.Errorf("shop depends on %s", strings.TrimSpace(name))
			}
		}
	}
}
