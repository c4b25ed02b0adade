// SPDX-License-Identifier: MIT

package site

import (
	"testing"

	"shop/loadtest/internal/testbed"
)

func TestMain(m *testing.M) { testbed.Main(m) }
