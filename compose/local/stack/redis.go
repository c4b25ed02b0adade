// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Redis with the append-only file synced at each write: an acknowledged write
// survives SIGKILL.
var _ = register(redisKind("redis", "--appendonly", "yes", "--appendfsync", "always"))

// Redis without a file: started again, it is empty.
var _ = register(redisKind("redis-memory", "--appendonly", "no"))

func redisKind(name string, data ...string) kind {
	return kind{
		name:     name,
		variable: "SHOP_REDIS_URL",
		byName:   name != "redis",
		users:    []string{"redis", "nobody"},
		program:  program{file: "redis-server", apt: "redis-server", brew: "redis"},
		argv: func(i *instance) []string {
			listen := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(i.Ports[0]), "--dir", i.Dir}
			return slices.Concat(listen, data, []string{"--save", "", "--daemonize", "no"})
		},
		ready: func(ctx context.Context, i *instance) error { return redisInfo(ctx, i.addr(), i.snapshot().First.PID) },
		url:   func(i *instance) string { return "redis://" + i.addr() + "/0" },
		stop:  syscall.SIGTERM,
		quick: syscall.SIGKILL,
	}
}

// redisInfo checks that Redis has loaded its data and that its pid is pid. A Redis
// that is loading its file replies LOADING; a foreign Redis has another pid.
func redisInfo(ctx context.Context, addr string, pid int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("EXISTS ready\r\nINFO server\r\nQUIT\r\n")); err != nil {
		return err
	}
	reply, err := io.ReadAll(conn)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(reply), ":") {
		line, _, _ := strings.Cut(string(reply), "\r\n")
		return fmt.Errorf("redis replies %q", line)
	}
	if !strings.Contains(string(reply), fmt.Sprintf("\r\nprocess_id:%d\r\n", pid)) {
		return fmt.Errorf("a foreign Redis listens on %s", addr)
	}
	return nil
}
