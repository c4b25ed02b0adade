// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"slices"

	"shop/loadtest"
	"shop/loadtest/crashmatrix"
	"shop/loadtest/fault"
	"shop/loadtest/fault/nemesis"
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
		if c.Strategy == "" {
			all = append(all, loadtest.Only(l.Matrix(l.offers), "", "", string(loadtest.CrashMatrix))...)
			continue
		}
		for _, strategy := range l.offers {
			if strategy.Name == c.Strategy {
				s := l.Safe(c.Strategy, loadtest.CrashMatrix)
				s.Cells = slices.DeleteFunc(s.CellsOf(), func(cell loadtest.Cell) bool {
					return cell.Fault.Store != "" && !slices.Contains(strategy.Stores, cell.Fault.Store)
				})
				all = append(all, s)
			}
		}
	}
	return all
}

// hasLinks reports whether replica n, from 0, reaches its stores through links that a fault can cut.
func (e *environment) hasLinks(s loadtest.Scenario, n int) bool {
	return s.Fault == loadtest.Nemesis || s.Fault == loadtest.CrashMatrix && n == e.victim()
}

// victim returns the number of the replica that gets the faults of a crash matrix, from 0.
func (e *environment) victim() int { return e.settings.Replicas - 1 }

// crashMatrix is the fault that runs the cells of a trial.
func (e *environment) crashMatrix(t *loadtest.Trial) fault.Fault {
	links := map[string]*nemesis.Link{}
	for _, l := range e.links {
		links[l.Store()] = l
	}
	return crashmatrix.Matrix{Trial: t, Links: links}
}

// armed adds the failpoints of the cells to the arguments of the victim.
func (e *environment) armed(s loadtest.Scenario, args func(n int, listen, metrics string) []string) func(n int, listen, metrics string) []string {
	points := crashmatrix.Failpoints(s)
	return func(n int, listen, metrics string) []string {
		if n != e.victim() {
			return args(n, listen, metrics)
		}
		return append(args(n, listen, metrics), points...)
	}
}
