// SPDX-License-Identifier: MIT

package loadtest

import (
	"time"

	"shop/loadtest/fault"
	"shop/loadtest/fault/replicafault"
)

// CrashSpec is Crash: replicas are killed at each of Flow.Steps, or at any moment if it has none.
func CrashSpec(needs ...Need) FaultSpec {
	return FaultSpec{Fault: Crash, Needs: needs, Setup: Setup{Inject: func(_ Servers, t *Trial) (fault.Fault, error) {
		if f := t.Scenario.Flow; len(f.Steps) > 0 {
			return replicafault.CrashSteps{Replicas: t.Replicas, Flow: f.Name, Steps: f.Steps, Action: "kill", Wait: stepWait}, nil
		}
		return replicafault.Crash{Victims: t.Replicas, Times: 6}, nil
	}}}
}

// stepWait bounds how long a replica runs that must die at a step: only some requests reach the step.
const stepWait = 5 * time.Second
