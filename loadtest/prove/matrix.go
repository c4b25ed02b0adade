// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"slices"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
)

// matrixFlags are the flags of the crash matrix.
type matrixFlags struct {
	Matrix bool `help:"Only the crash matrix: at each step of a request its replica is killed, paused past the TTL, and cut from each store. It runs for each flow's default strategy, with a control that must be violated; with --strategy for that strategy, which is expected to be safe."`
}

func (c *app) validateMatrix() error {
	switch {
	case !c.Matrix.Matrix:
		return nil
	case c.Fault != "" || c.Quick || c.Duration != 0 || c.Target != "" || c.Nemesis.Nemesis:
		return errors.New("--matrix cannot be combined with --fault, --quick, --duration, --nemesis or --target: it has faults of its own, which determine its length")
	case c.Replicas < 3:
		return errors.New("--matrix needs --replicas of at least 3: one gets the faults, and two race with each other")
	}
	return nil
}

// crashMatrices returns the scenarios of --matrix.
func (c *app) crashMatrices(lessons []lesson) (all []loadtest.Scenario) {
	for _, l := range lessons {
		offered := slices.IndexFunc(l.offers, func(o loadtest.Strategy) bool { return o.Name == c.Strategy })
		for _, s := range loadtest.Only(l.Matrix(nil), "", "", string(crashmatrix.Name)) {
			switch {
			case c.Strategy == "":
				all = append(all, s)
			case offered >= 0 && s.Expect == loadtest.Safe:
				s.Strategy, s.Experiment = c.Strategy, s.Experiment.(crashmatrix.Matrix).Within(l.offers[offered].Stores)
				all = append(all, s)
			}
		}
	}
	return all
}
