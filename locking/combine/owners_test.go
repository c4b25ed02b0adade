// SPDX-License-Identifier: MIT

package combine

import "testing"

func TestOwners_KnowsWhatWasAddedAndIsBounded(t *testing.T) {
	t.Parallel()
	var o Owners[int, string]
	o.Add(1, "alice")
	if !o.Has(1, "alice") || o.Has(1, "bob") || o.Has(2, "alice") {
		t.Error("it does not know the owner of 1, or knows others")
	}
	for object := range 2 * ownersMax {
		o.Add(object, "bob")
		if len(o.of) > ownersMax {
			t.Fatalf("it remembers %d owners", len(o.of))
		}
	}
	if !o.Has(2*ownersMax-1, "bob") {
		t.Error("it has forgotten the latest")
	}
}
