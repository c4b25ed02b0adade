// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"shop/locking/zklock"
)

// The address of ZooKeeper is in this setting.
const zookeeperServers = "SHOP_ZOOKEEPER_SERVERS"

func openZklock(ctx context.Context) (locker, error) {
	s, err := zklock.New(ctx, strings.Split(os.Getenv(zookeeperServers), ","), ttl, zklock.Options{})
	if err != nil {
		return nil, err
	}
	return store(s, s.Close), nil
}

// openGoZookeeper is the Lock of the client library, which zklock uses too. It has no ctx: a goroutine that waits cannot leave.
func openGoZookeeper(context.Context) (locker, error) {
	conn, _, err := zk.Connect(strings.Split(os.Getenv(zookeeperServers), ","), ttl, zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	return locked{func(_ context.Context, key string) (func() error, error) {
		l := zk.NewLock(conn, "/bench-"+key, zk.WorldACL(zk.PermAll))
		return l.Unlock, l.Lock()
	}, conn.Close}, nil
}

// zookeeperPackets returns how many packets the server has received.
func zookeeperPackets(ctx context.Context) (float64, error) {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", os.Getenv(zookeeperServers))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if n, found := strings.CutPrefix(lines.Text(), "Received: "); found {
			return strconv.ParseFloat(n, 64)
		}
	}
	return 0, fmt.Errorf("ZooKeeper at %s does not say what it has received", conn.RemoteAddr())
}
