// SPDX-License-Identifier: MIT

package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Durable are the settings of a Redis whose acknowledged writes survive SIGKILL: the append-only file is synced at each.
var Durable = []string{"--appendonly", "yes", "--appendfsync", "always"}

// Redis is a Redis with settings. Without Durable it is empty when it is started again.
func Redis(settings ...string) Kind {
	return Kind{
		Name: "redis", File: "redis-server", Users: []string{"redis", "nobody"}, Ready: redisReady,
		Argv: func(i *Instance) []string {
			listen := []string{"--bind", "127.0.0.1", "--port", strconv.Itoa(i.Ports[0]), "--dir", i.Dir, "--daemonize", "no"}
			return slices.Concat(settings, listen, []string{"--save", ""})
		},
		URL: func(i *Instance) string { return "redis://" + i.Addr() + "/0" },
	}
}

// Sentinel is a Sentinel with the lines of its file.
func Sentinel(lines func(*Instance) []string) Kind {
	file := func(i *Instance) string { return filepath.Join(i.Dir, "sentinel.conf") }
	k := Redis()
	k.Setup = func(_ context.Context, i *Instance) error {
		return i.Write(file(i), strings.Join(lines(i), "\n")+"\n")
	}
	k.Argv = func(i *Instance) []string { return Redis(file(i), "--sentinel").Argv(i) }
	return k
}

// redisReady checks that Redis has loaded its data and that its pid is that of the instance.
func redisReady(ctx context.Context, i *Instance) error {
	reply, err := RedisAsk(ctx, i.Addr(), "INFO server")
	if err == nil && !strings.Contains(reply, fmt.Sprintf("\r\nprocess_id:%d\r\n", i.Snapshot().First.PID)) {
		err = fmt.Errorf("a foreign Redis listens on %s", i.Addr())
	}
	return err
}

// RedisAsk sends commands and returns all replies. A PING marks the end, since Sentinel knows no QUIT. A Redis that is
// loading its file replies LOADING to it.
func RedisAsk(ctx context.Context, addr string, commands ...string) (string, error) {
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
		if err == nil && strings.Contains(reply.String(), "\n-LOADING") {
			err = errors.New("redis is loading its data")
		}
		if err != nil {
			return reply.String(), err
		}
	}
	return reply.String(), nil
}
