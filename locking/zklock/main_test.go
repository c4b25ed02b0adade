// SPDX-License-Identifier: MIT

package zklock

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"shop/locking/servertest"
)

// TestMain starts one ZooKeeper for all tests and examples, unless SHOP_ZOOKEEPER_SERVERS names one.
func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests wait most of the time; -parallel overrides it
	goleak.VerifyTestMain(servertest.WithServer(m, func(t testing.TB) {
		if os.Getenv("SHOP_ZOOKEEPER_SERVERS") == "" {
			_ = os.Setenv("SHOP_ZOOKEEPER_SERVERS", servertest.StartZooKeeper(t, 1)[0].Addr)
		}
	}))
}
