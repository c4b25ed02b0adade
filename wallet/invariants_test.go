// SPDX-License-Identifier: MIT

package wallet_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"shop/wallet"
)

// What runs is what stands in the file, so that it can be copied into mongosh.
func TestInvariants_StandInTheFileAsTheyRun(t *testing.T) {
	text, err := os.ReadFile("invariants.js")
	if err != nil {
		t.Fatal(err)
	}
	file, all := string(text), slices.Concat(wallet.Invariants.Checks, wallet.Invariants.Numbers)
	for _, check := range all {
		call := "\ndb." + check.From + ".aggregate([\n" + check.Query + "\n], {readConcern: {level: \"snapshot\"}});\n"
		if !strings.Contains(file, call) {
			t.Errorf("%s is not in the file: %s", check.Name, call)
		}
	}
	if n := strings.Count(file, ".aggregate("); n != len(all) {
		t.Errorf("%d aggregations in the file, %d run", n, len(all))
	}
	if opened, replaced := strings.Count(file, "$opening\""), strings.Count(file, "([\n"+wallet.Openings+",\n"); opened != replaced || replaced == 0 {
		t.Errorf("openings are read %d times, but can be replaced by the plan's %d times", opened, replaced)
	}
}
