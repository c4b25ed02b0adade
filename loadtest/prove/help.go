// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"slices"
	"strings"

	"shop/loadtest"
)

const description = `Loads replicas of shop, injects faults into them and their servers, and audits the databases.

Each setting is a flag or an environment variable; the flag wins. Exit status:
0 all as expected, 1 not as expected, 2 wrong usage or could not run.`

// invariants lists the invariants, for --help.
func invariants() string {
	var text strings.Builder
	seen := map[string]bool{}
	for _, f := range (&environment{}).lessons() {
		fmt.Fprintf(&text, "\n\nInvariants of %s:", f.Name)
		for _, i := range f.AllInvariants() {
			if !seen[i.Code] || !slices.Contains(loadtest.Invariants, i) {
				fmt.Fprintf(&text, "\n  %s: %s", i, i.Means)
			}
			seen[i.Code] = true
		}
	}
	return text.String()
}
