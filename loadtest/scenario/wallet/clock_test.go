// SPDX-License-Identifier: MIT

package wallet

import (
	"maps"
	"slices"
	"testing"
	"time"

	"shop/loadtest/internal/testproof"
	"shop/loadtest/traffic"
)

func TestMoments_AnOperationIsDoneWhileItsClientWaits(t *testing.T) {
	clock := traffic.History{Epoch: time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC)}
	for _, c := range []struct {
		name, key string
		plant     func(map[string]traffic.Record)
	}{
		{"correct", "", nil},
		{"a credit of an hour ago", "k1: ", tells("k1", "2026-01-01T00", "2025-12-31T23")},
		{"a debit after its answer", "k2: ", tells("k2", "00:00:01Z", "00:00:02Z")},
		{"a payment without a time", "k3: ", tells("k3", "created_at", "done_at")},
	} {
		records := correctReplies()
		if c.plant != nil {
			c.plant(records)
		}
		wrong := clock.Untimely(slices.Collect(maps.Values(records)), New(Environment{}).Moments)
		testproof.WantOne(t, c.name, wrong, c.key)
	}
}

func TestMoments_EachActionWithAnEffectHasOne(t *testing.T) {
	plan := NewPlan(traffic.Load{Rate: 100, Duration: time.Second, Seed: 1, Replicas: 3})
	for _, i := range plan.Load() {
		if New(Environment{}).Moments[i.Action] == "" {
			t.Errorf("%s has no time", i.Action)
		}
	}
}
