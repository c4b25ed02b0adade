package zklock

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"shop/compose/local/stack"
)

// TestMain starts one ZooKeeper for all tests and examples, unless SHOP_ZOOKEEPER_SERVERS names one.
func TestMain(m *testing.M) {
	kill, err := startServer()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = flag.Set("test.parallel", "8") // the tests wait most of the time; -parallel overrides it
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		kill()
		os.Exit(code)
	}))
}

func startServer() (kill func(), err error) {
	if os.Getenv("SHOP_ZOOKEEPER_SERVERS") != "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // the first start installs it
	defer cancel()
	all, err := stack.Attach(os.Getenv("SHOP_STACK"))
	if err != nil {
		return nil, err
	}
	s, err := all.Private(ctx, "zookeeper")
	if err != nil {
		return nil, err
	}
	return func() { _ = s.Kill(context.Background()) }, os.Setenv("SHOP_ZOOKEEPER_SERVERS", s.Addr)
}
