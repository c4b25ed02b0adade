// SPDX-License-Identifier: MIT

package loadtest

import (
	"testing"

	"shop/loadtest/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
