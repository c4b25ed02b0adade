// SPDX-License-Identifier: MIT

package inventory_test

import (
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis also returns its connection errors
	goleak.VerifyTestMain(m)
}
