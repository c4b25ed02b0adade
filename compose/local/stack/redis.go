package stack

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// Redis with the append-only file synced at each write: what it has said OK to
// survives SIGKILL.
var _ = register(kind{
	name:     "redis",
	variable: "SHOP_REDIS_URL",
	users:    []string{"redis", "nobody"},
	program:  program{file: "redis-server", apt: "redis-server", brew: "redis"},
	argv: func(i *instance) []string {
		return []string{
			"--bind", "127.0.0.1", "--port", strconv.Itoa(i.Ports[0]), "--dir", i.Dir,
			"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no",
		}
	},
	ready: func(ctx context.Context, i *instance) error { return redisPing(ctx, i.addr()) },
	url:   func(i *instance) string { return "redis://" + i.addr() + "/0" },
	stop:  syscall.SIGTERM,
	quick: syscall.SIGKILL,
})

// redisPing wants PONG. While Redis reads its file it listens, and says LOADING.
func redisPing(ctx context.Context, addr string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) != "+PONG" {
		return fmt.Errorf("redis answers PING with %q", answer)
	}
	return nil
}
