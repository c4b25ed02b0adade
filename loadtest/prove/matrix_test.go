// SPDX-License-Identifier: MIT

package main

import (
	"slices"
	"testing"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
)

func TestMatrix_EachFlowHasItsDefaultStrategyAndAControl(t *testing.T) {
	var names []string
	cells := map[string]int{}
	for _, s := range (&app{}).crashMatrices((&environment{}).lessons()) {
		names = append(names, s.Name())
		cells[s.Name()] = len(s.Experiment.(crashmatrix.Matrix).Tried)
	}
	for name, want := range map[string]int{
		"inventory/redis+row/crash-matrix": 48, "transfer/etcd-fenced/crash-matrix": 48, "wallet/lockid/crash-matrix": 32,
		"inventory/naive/crash-matrix": 1, "transfer/naive/crash-matrix": 1, "wallet/naive/crash-matrix": 1,
	} {
		if !slices.Contains(names, name) || cells[name] != want {
			t.Errorf("%s: %d cells, want %d", name, cells[name], want)
		}
	}
	for _, s := range (&environment{}).matrix() {
		names = slices.DeleteFunc(names, func(name string) bool { return name == s.Name() })
	}
	if len(names) > 0 {
		t.Errorf("not part of the whole proof: %q", names)
	}
}

func TestMatrix_AStrategyIsCutFromItsStoresAlone(t *testing.T) {
	c := &app{Strategy: "row"}
	for _, s := range c.crashMatrices((&environment{}).lessons()) {
		cells := s.Experiment.(crashmatrix.Matrix).Tried
		if s.Expect != loadtest.Safe || len(cells) != 8*(2+2) {
			t.Errorf("%s: %d cells", s.Name(), len(cells))
		}
		for _, cell := range cells {
			if cell.Fault.Store == "redis" || cell.Fault.Store == "etcd" {
				t.Errorf("%s: %v", s.Name(), cell)
			}
		}
	}
}

func TestMatrix_FlagsThatDoNotCombineAreRejected(t *testing.T) {
	for _, c := range []app{{Fault: "crash"}, {Quick: true}, {Nemesis: nemesisFlags{Nemesis: true}}, {Target: "file"}, {Replicas: 2}} {
		if c.Replicas == 0 {
			c.Replicas = 3
		}
		if err := c.validateMatrix(); err != nil {
			t.Errorf("without it: %v", err)
		}
		if c.Matrix.Matrix = true; c.validateMatrix() == nil {
			t.Errorf("taken: %+v", c)
		}
	}
}

// The whole proof must check enough operations; the crash matrix alone need not.
func TestMatrix_AloneIsNotTheWholeProof(t *testing.T) {
	var whole, alone app
	whole.setDefaults()
	alone.Matrix.Matrix = true
	alone.setDefaults()
	if !whole.whole || alone.whole {
		t.Errorf("whole: %t, and with --matrix %t", whole.whole, alone.whole)
	}
}
