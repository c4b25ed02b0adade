// SPDX-License-Identifier: MIT

package locking

// Trust exports trust to the tests outside the package.
var Trust = trust
