// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"testing"

	"shop/loadtest"
)

func TestFault_EachFaultOfAFlowIsInjectedAndAnUnknownOneIsNot(t *testing.T) {
	e := &environment{settings: &app{}}
	for _, l := range e.lessons() {
		for _, spec := range l.Faults {
			if (spec.Setup.Inject == nil) != (spec.Fault == loadtest.NoFault) {
				t.Errorf("%s: nothing injects %s", l.Name, spec.Fault)
			}
		}
		trial := &loadtest.Trial{Scenario: l.Safe(l.offers[0].Name, "earthquake")}
		if _, err := e.fault(trial); err == nil {
			t.Errorf("%s: an unknown fault is injected", l.Name)
		}
	}
}

func TestWidened_AControlHasNoPauseUnlessItSaysSo(t *testing.T) {
	e := &environment{}
	var need []string
	for _, s := range e.matrix() {
		if loadtest.NewResult(s, 3).NeedsPause {
			need = append(need, s.Name())
		}
		if pause := widened(s, "after-guard", s.Setup().Guard); (pause != nil) != (s.Expect == loadtest.Safe || loadtest.NewResult(s, 3).NeedsPause) {
			t.Errorf("%s: %q", s.Name(), pause)
		}
	}
	if want := []string{"inventory/redis-only/redis-failover", "transfer/etcd-unfenced/lease-revoked"}; !slices.Equal(need, want) {
		t.Errorf("the pause is needed by %q; docs/proofs.md and the comment of package loadtest name %q", need, want)
	}
	for _, s := range (&app{Nemesis: nemesisFlags{Count: 1}}).nemeses(e.lessons()) {
		if widened(s, "after-guard", 1) == nil || loadtest.NewResult(s, 3).NeedsPause != (s.Expect == loadtest.Violated) {
			t.Errorf("%s has no pause, or does not say so", s.Name())
		}
	}
}
