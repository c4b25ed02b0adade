// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"net"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/servertest"
)

// A mongod that is no replica set has no transactions: each credit would fail, and nothing else would say why.
func TestMongo_WithoutAReplicaSetIsRefusedWithTheRemedy(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	alone := servertest.Mongod(func(ctx context.Context, s *servertest.Server) error {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.Addr + "/?directConnection=true"))
		if err != nil {
			return err
		}
		defer func() { _ = client.Disconnect(ctx) }()
		return client.Ping(ctx, nil)
	})
	alone.Args = func(s *servertest.Server) []string {
		host, port, _ := net.SplitHostPort(s.Addr)
		return []string{"--bind_ip", host, "--port", port, "--nounixsocket", "--dbpath", s.Dir, "--wiredTigerCacheSizeGB", "0.25", "--quiet"}
	}
	url := "mongodb://" + servertest.Start(t, alone).Addr + "/shop"
	for _, command := range []string{"migrate", "serve", "audit"} {
		args := []string{command, "--postgres-url", databaseURL, "--mongo-url", url}
		if command == "serve" {
			args = append(args, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0")
		}
		out, err := shop(t, args...)
		if exitCode(err) != 2 || !strings.Contains(err.Error(), "rs.initiate()") {
			t.Errorf("%s: %v, want exit 2 and the command that makes it a set\n%s", command, err, out)
		}
	}
}
