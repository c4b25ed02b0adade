// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Redis as a master with two replicas (members 1 to 3), watched by three Sentinels (members 4 to
// 6). Sentinel takes a master for down after a second without an answer. Its address is that of the
// Sentinels, as go-redis parses it.
var _ = register(kind{
	name:     "redis-sentinel",
	variable: "SHOP_REDIS_URL",
	byName:   true,
	members:  sentinelFirst + 3,
	users:    []string{"redis", "nobody"},
	program:  program{file: "redis-server", apt: "redis-server", brew: "redis"},
	setup: func(_ context.Context, i *instance) error {
		if !isSentinel(i) {
			return nil
		}
		settings := []string{
			"sentinel monitor " + SentinelMaster + " 127.0.0.1 " + strconv.Itoa(i.cluster[0].Ports[0]) + " 2",
			"sentinel down-after-milliseconds " + SentinelMaster + " 1000",
			"sentinel failover-timeout " + SentinelMaster + " 5000",
		}
		for _, replica := range i.cluster[1:sentinelFirst] { // otherwise found after ten seconds
			settings = append(settings, "sentinel known-replica "+SentinelMaster+" 127.0.0.1 "+strconv.Itoa(replica.Ports[0]))
		}
		return i.write(sentinelSettings(i), strings.Join(settings, "\n")+"\n")
	},
	argv:  sentinelArgs,
	ready: sentinelReady,
	join:  sentinelJoin,
	url: func(i *instance) string {
		watch := i.cluster[sentinelFirst:]
		return fmt.Sprintf("redis://%s/0?master_name=%s&addr=%s&addr=%s", watch[0].addr(), SentinelMaster, watch[1].addr(), watch[2].addr())
	},
	stop:  syscall.SIGTERM,
	quick: syscall.SIGKILL,
})

// SentinelMaster is the name by which Sentinels know their master.
const SentinelMaster = "shop"

// sentinelFirst is the index of the first Sentinel.
const sentinelFirst = 3

func isSentinel(i *instance) bool { return slices.Index(i.cluster, i) >= sentinelFirst }

func sentinelSettings(i *instance) string { return filepath.Join(i.Dir, "sentinel.conf") }

// sentinelArgs starts member 1 as the master, even if another one was promoted meanwhile: the
// Sentinels then make it a replica.
func sentinelArgs(i *instance) []string {
	listen := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(i.Ports[0]), "--dir", i.Dir, "--daemonize", "no"}
	if isSentinel(i) {
		return append([]string{sentinelSettings(i), "--sentinel"}, listen...)
	}
	data := append(listen, "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--repl-diskless-sync-delay", "0")
	if first := i.cluster[0]; i != first {
		data = append(data, "--replicaof", "127.0.0.1 "+strconv.Itoa(first.Ports[0]))
	}
	return data
}

func sentinelReady(ctx context.Context, i *instance) error {
	if !isSentinel(i) {
		return redisInfo(ctx, i.addr(), i.snapshot().First.PID)
	}
	reply, err := redisAsk(ctx, i.addr(), "INFO server")
	if err == nil && !strings.Contains(reply, fmt.Sprintf("\r\nprocess_id:%d\r\n", i.snapshot().First.PID)) {
		err = fmt.Errorf("a foreign Sentinel listens on %s", i.addr())
	}
	return err
}

// sentinelJoin waits until each Sentinel knows both replicas, as synchronized, and the other Sentinels.
func sentinelJoin(ctx context.Context, first *instance) error {
	for _, i := range first.cluster[sentinelFirst:] {
		err := until(ctx, func() error {
			reply, err := redisAsk(ctx, i.addr(), "SENTINEL REPLICAS "+SentinelMaster, "INFO sentinel")
			if err == nil && (strings.Count(reply, "\r\nmaster-link-status\r\n$2\r\nok\r\n") != 2 || !strings.Contains(reply, ",slaves=2,sentinels=3")) {
				err = fmt.Errorf("it replies %.300q", reply)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("%s does not know all members: %w", i.Name, err)
		}
	}
	return nil
}

// redisAsk sends commands and returns all replies. Sentinel knows no QUIT, so a PING marks the end.
func redisAsk(ctx context.Context, addr string, commands ...string) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := io.WriteString(conn, strings.Join(append(commands, "PING"), "\r\n")+"\r\n"); err != nil {
		return "", err
	}
	var reply strings.Builder
	buffer := make([]byte, 4096)
	for !strings.HasSuffix(reply.String(), "+PONG\r\n") {
		n, err := conn.Read(buffer)
		reply.Write(buffer[:n])
		if err != nil {
			return reply.String(), err
		}
	}
	return reply.String(), nil
}
