// SPDX-License-Identifier: MIT

package loadtest

import (
	"slices"

	"shop/locking/invariant"
)

// unrun is the result of a trial that could not be run. A replica that exited by itself may be why.
func (t *Trial) unrun(err error) Result {
	result := NewResult(t.Scenario, t.proof.Load.Replicas)
	result.Missed = []string{"it could not be run: " + err.Error()}
	result.Plan, result.Inconclusive, result.Evidence, result.Findings = t.Plan, result.Missed, map[string]int64{}, invariant.Findings{}
	t.exits(result.Findings)
	result.Violations = result.Findings.Counts()
	result.Verdict, result.AsExpected = Judge(t.Scenario, result.Violations, result.Inconclusive)
	return result
}

// twiceIfVoid runs a scenario, and once more if the first run is not as expected only because something did not happen in
// it: the machine may have stood still while the fault was injected. The second run is the result, with its files, and
// Result.Again says why. A violation of what must hold is not repeated: of a safe scenario any, of a control one that it must
// keep. A Nemesis is not repeated: it lasts as long as the user said.
func twiceIfVoid(s Scenario, run func() (Result, error)) (Result, error) {
	result, err := run()
	missed := len(result.Missed) > 0 && len(result.Missed) == len(result.Inconclusive)
	wrong := slices.ContainsFunc(s.Flow.Broken(result.Violations), func(code string) bool {
		return s.Expect == Safe || slices.Contains(s.Keeps, code)
	})
	if err != nil || !missed || wrong || s.Fault == Nemesis {
		return result, err
	}
	void := result.Inconclusive
	result, err = run()
	result.Again = void
	return result, err
}
