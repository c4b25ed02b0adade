// SPDX-License-Identifier: MIT

package inventory

import (
	"maps"
	"slices"
	"testing"
	"time"

	"shop/loadtest/internal/testproof"
	"shop/loadtest/traffic"
)

func TestMoments_AnOrderIsMadeAndCancelledWhileItsClientWaits(t *testing.T) {
	clock := traffic.History{Epoch: epoch}
	for _, c := range []struct {
		name, key string
		plant     func(map[string]traffic.Record)
	}{
		{"correct", "", nil},
		{"local time as UTC", "k1: ", altered("k1", "2026-01-01T00", "2026-01-01T01")},
		{"bought before the request", "k2: ", altered("k2", "2026-01-01T01", "2025-12-31T01")},
		{"no time", "k1: ", altered("k1", "created_at", "made_at")},
		{"cancelled before the request", "c3: ", altered("c3", "00.5Z", "00.4Z")},
		{"cancelled after the answer", "c3: ", forgery("c3", func(r *traffic.Record) {
			r.Attempts = []traffic.Attempt{{Outcome: traffic.OK, Sends: 1, Start: time.Millisecond, End: 2 * time.Millisecond}}
		})},
	} {
		wrong := clock.Untimely(replies(c.plant), New().Moments)
		testproof.WantOne(t, c.name, wrong, c.key)
	}
}

func TestMoments_EachActionWithAnEffectHasOne(t *testing.T) {
	plan := NewPlan(traffic.Load{Rate: 100, Duration: time.Second, Seed: 1, Replicas: 3})
	actions := slices.Sorted(maps.Keys(New().Moments))
	for _, i := range plan.Load() {
		if !slices.Contains(actions, i.Action) {
			t.Errorf("%s has no time", i.Action)
		}
	}
}
