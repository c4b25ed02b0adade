// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/servertest"
	"shop/locking/servertest/daemon"
	"shop/locking/servertest/daemon/mongod"
)

// A mongod that is no replica set has no transactions: each credit would fail, and nothing else would say why.
func TestMongo_WithoutAReplicaSetIsRefusedWithTheRemedy(t *testing.T) {
	databaseURL, _ := newDatabase(t)
	alone := mongod.Kind(1)
	alone.Join = nil
	alone.Ready = func(ctx context.Context, i *daemon.Instance) error {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + i.Addr() + "/?directConnection=true"))
		if err != nil {
			return err
		}
		defer func() { _ = client.Disconnect(ctx) }()
		return client.Ping(ctx, nil)
	}
	alone.Argv = func(i *daemon.Instance) []string {
		return []string{"--bind_ip", "127.0.0.1", "--port", strconv.Itoa(i.Ports[0]), "--nounixsocket", "--dbpath", i.Dir, "--wiredTigerCacheSizeGB", "0.25", "--quiet"}
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
