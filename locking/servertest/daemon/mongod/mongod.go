// SPDX-License-Identifier: MIT

// Package mongod is daemon.Kind for MongoDB, with the queries of its client.
package mongod

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/servertest/daemon"
)

// Kind is a MongoDB as a replica set of this many members: transactions need a set.
// Test commands such as failCommand are enabled. A test changes a parameter such as
// transactionLifetimeLimitSeconds with setParameter on each member; a restart
// restores the default.
func Kind(members int) daemon.Kind {
	return daemon.Kind{Name: "mongo", File: "mongod", Members: members, Argv: args, Ready: ready, Join: initiate, URL: urlOf}
}

func args(i *daemon.Instance) []string {
	return []string{
		"--bind_ip", "127.0.0.1", "--port", strconv.Itoa(i.Ports[0]), "--nounixsocket",
		"--dbpath", i.Dir, "--replSet", set(i), "--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.25",
		// The default journal settings except the file size, whose default preallocates 300 MB.
		"--wiredTigerEngineConfigString", "log=(enabled=true,path=journal,compressor=snappy,file_max=16MB)",
		"--setParameter", "enableTestCommands=1",
		"--setParameter", "diagnosticDataCollectionEnabled=false",
		// The files of a dropped collection stay open until the history window of
		// snapshots (300 s by default) and a checkpoint have passed.
		"--setParameter", "minSnapshotHistoryWindowInSeconds=5", "--syncdelay", "10",
		// The default waits 15 s for clients to disconnect from a member of a set of three.
		"--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100",
		"--quiet",
	}
}

// set returns the set's name. It contains the secret, so that a client refuses a
// foreign mongod that took the port.
func set(i *daemon.Instance) string { return "mongo-" + i.Secret }

func urlOf(i *daemon.Instance) string {
	return "mongodb://" + i.Addresses() + "/shop?replicaSet=" + set(i)
}

// initiate makes the set, with its members' addresses and not the host's name, and
// waits until each member has acknowledged a write.
func initiate(ctx context.Context, first *daemon.Instance) error {
	var members bson.A
	for n, m := range first.Cluster {
		members = append(members, bson.D{{Key: "_id", Value: n}, {Key: "host", Value: m.Addr()}})
	}
	err := do(ctx, "mongodb://"+first.Addr()+"/?directConnection=true", func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: set(first)},
			{Key: "members", Value: members},
			{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: 2000}, {Key: "heartbeatIntervalMillis", Value: 500}}},
		}}}).Err()
	})
	if err != nil {
		return fmt.Errorf("replSetInitiate: %w", err)
	}
	if len(members) > 1 {
		if err := daemon.Until(ctx, func() error { return stepUp(ctx, first) }); err != nil {
			return fmt.Errorf("replSetStepUp: %w", err)
		}
	}
	return write(ctx, first, len(first.Cluster))
}

// stepUp makes a member the primary, if a majority votes. An election by itself begins at the
// election timeout. Each attempt has its own client: one that got an error waits for a heartbeat.
func stepUp(ctx context.Context, i *daemon.Instance) error {
	return do(ctx, "mongodb://"+i.Addr()+"/?directConnection=true", func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}).Err()
	})
}

// ready checks that the process on the port is this member. If the member is
// in a set, ready then writes with majority, which needs a primary.
func ready(ctx context.Context, i *daemon.Instance) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.Addr())
	if err != nil {
		return err // the driver would retry until ctx ends
	}
	conn.Close()
	var inSet bool
	err = do(ctx, "mongodb://"+i.Addr()+"/?directConnection=true", func(admin *mongo.Database) error {
		inSet, err = isMember(ctx, i, admin)
		return err
	})
	if err != nil || !inSet {
		return err
	}
	return write(ctx, i, "majority")
}

// isMember reports whether the set has been initiated. It reads this from the data,
// because a starting member does not report it at first. It counts the documents instead
// of estimating, because after a SIGKILL the estimate may be 0.
func isMember(ctx context.Context, i *daemon.Instance, admin *mongo.Database) (inSet bool, err error) {
	var status struct {
		PID  int
		Repl struct{ IsWritablePrimary, Secondary bool }
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		return false, err
	}
	if status.PID != i.Snapshot().First.PID {
		return false, fmt.Errorf("a foreign mongod listens on %s", i.Addr())
	}
	sets, err := admin.Client().Database("local").Collection("system.replset").CountDocuments(ctx, bson.D{})
	if err != nil || sets == 0 {
		return false, err
	}
	alone := len(i.Cluster) == 1
	if !status.Repl.IsWritablePrimary && (alone || !status.Repl.Secondary) {
		return true, fmt.Errorf("%s is neither primary nor secondary yet", i.Name)
	}
	return true, nil
}

// write writes a note to the oplog, which changes no database, and returns when
// it is acknowledged with write concern w.
func write(ctx context.Context, i *daemon.Instance, w any) error {
	return do(ctx, urlOf(i), func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{
			{Key: "appendOplogNote", Value: 1},
			{Key: "data", Value: bson.D{{Key: "ready", Value: i.Name}}},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: w}}},
		}).Err()
	})
}

func do(ctx context.Context, url string, then func(admin *mongo.Database) error) error {
	// Disconnect can take one heartbeat interval, which is 10 s by default.
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetHeartbeatInterval(500 * time.Millisecond))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return then(client.Database("admin"))
}
