// SPDX-License-Identifier: MIT

package locktest

import "testing"

// Slow leaves the test out of `go test -short`, which make check runs before each commit. make test and CI run it.
//
// Slow tests are tests of tests, tests with clusters and sentinels, restarts of servers, waits for a real time limit of more
// than two seconds, tests in a browser, and tests that build and start programs. why says which of them this one is.
func Slow(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: " + why)
	}
}
