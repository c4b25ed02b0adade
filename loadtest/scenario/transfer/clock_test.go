// SPDX-License-Identifier: MIT

package transfer

import (
	"maps"
	"slices"
	"testing"
	"time"

	"shop/loadtest/internal/testproof"
	"shop/loadtest/traffic"
)

func TestMoments_ATransferIsMadeAndEndedWhileItsClientWaits(t *testing.T) {
	clock := traffic.History{Epoch: epoch}
	for _, c := range []struct {
		name, key string
		plant     func(map[string]traffic.Record)
	}{
		{"correct", "", nil},
		{"made an hour before the request", "k1: ", altered("k1", `created_at":"2026-01-01T00`, `created_at":"2025-12-31T23`)},
		{"made after the answer", "k3: ", sentAt("k3", -time.Second)},
		{"posted before the request", "post-k2: ", altered("post-k2", `00.5Z`, `00Z`)},
		{"voided after the answer", "void-k3: ", altered("void-k3", `00.6Z`, `00.8Z`)},
		{"no time", "k1: ", altered("k1", "created_at", "made_at")},
	} {
		records := correctReplies()
		if c.plant != nil {
			c.plant(records)
		}
		wrong := clock.Untimely(slices.Collect(maps.Values(records)), New().Moments)
		testproof.WantOne(t, c.name, wrong, c.key)
	}
}

func TestMoments_EachActionWithAnEffectHasOne(t *testing.T) {
	for _, action := range []traffic.Action{Pay, Reserve, PostHold, VoidHold} {
		if New().Moments[action] == "" {
			t.Errorf("%s has no time", action)
		}
	}
}
