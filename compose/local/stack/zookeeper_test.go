// SPDX-License-Identifier: MIT

package stack_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// silent is a zk.Logger that discards the messages.
type silent struct{}

func (silent) Printf(string, ...any) {}

// zookeeperRegister connects anew for each request, because the client waits for an answer without a limit.
func zookeeperRegister(addr string) register {
	connect := func(ctx context.Context, do func(*zk.Conn) error) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		dial := func(network, address string, _ time.Duration) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		}
		client, _, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithDialer(dial), zk.WithLogger(silent{}), zk.WithLogInfo(false))
		if err != nil {
			return err
		}
		defer client.Close()
		defer context.AfterFunc(ctx, client.Close)()
		return do(client)
	}
	return register{
		write: func(ctx context.Context, value string) error {
			return connect(ctx, func(client *zk.Conn) error {
				_, err := client.Create("/kept", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
				if err == nil || errors.Is(err, zk.ErrNodeExists) {
					_, err = client.Set("/kept", []byte(value), -1)
				}
				return err
			})
		},
		read: func(ctx context.Context) (value string, err error) {
			err = connect(ctx, func(client *zk.Conn) error {
				content, _, err := client.Get("/kept")
				value = string(content)
				return err
			})
			return value, err
		},
	}
}

// ZooKeeper is not one of the default servers, and starts slowly: one test checks all that the tests of
// the others do.
func TestZooKeeper_KeepsItsDataThroughEveryEnd(t *testing.T) {
	t.Parallel()
	srv := server(t, open(t, "zookeeper"), "zookeeper")
	r := zookeeperRegister(srv.Addr)
	must(t, "the first request after Open", r.write(t.Context(), "first"))
	must(t, "Kill", srv.Kill(t.Context()))
	wantSilence(t, r)
	must(t, "Start after Kill", srv.Start(t.Context()))
	wantKept(t, r, "first")

	must(t, "write", r.write(t.Context(), "second"))
	must(t, "Pause", srv.Pause(t.Context()))
	wantSilence(t, r)
	must(t, "Resume", srv.Resume(t.Context()))
	wantKept(t, r, "second")
	must(t, "Stop", srv.Stop(t.Context()))
	must(t, "Start after Stop", srv.Start(t.Context()))
	wantKept(t, r, "second")
}
