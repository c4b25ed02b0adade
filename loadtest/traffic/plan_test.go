// SPDX-License-Identifier: MIT

package traffic

import "testing"

func TestSameKey_IsOfAnIntentUnderWayOrOverByTurns(t *testing.T) {
	var plan Plan
	distances := map[int]int{}
	for i := range 8 * SameKeyEvery {
		if other := plan.SameKey(); other != nil {
			distances[i] = i - other.Client // its number
		}
		plan.Intents = append(plan.Intents, &Intent{Client: i})
	}
	for i, distance := range distances {
		if under := i/SameKeyEvery%2 == 0; under && distance != 1 || !under && distance != i/2 {
			t.Errorf("intent %d has the key of the intent %d before it", i, distance)
		}
	}
	if len(distances) != 8 {
		t.Errorf("%d intents have another's key, want 8", len(distances))
	}
}
