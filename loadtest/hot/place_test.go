// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"net/http"
	"testing"
)

// What was made before a failure is removed: here the ctx ends before the wallet is made.
func TestPrepare_AFailureLeavesNoBonusService(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, drop, err := prepare(ctx, "wallet")
	if err == nil || drop != nil || p.Bonus == "" {
		t.Fatalf("bonus service %q, error %v, something left to drop: %t", p.Bonus, err, drop != nil)
	}
	if res, err := http.Get(p.Bonus); err == nil {
		_ = res.Body.Close()
		t.Error("the bonus service still answers")
	}
}
