// SPDX-License-Identifier: MIT

package stack

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// MongoDB as a replica set of one or of three members: transactions need a set.
// Test commands such as failCommand are enabled. A test changes a parameter such as
// transactionLifetimeLimitSeconds with setParameter on each member; a restart
// restores the default.
var (
	_ = register(mongoKind("mongo", 1))
	_ = register(mongoKind("mongo3", 3))
)

func mongoKind(name string, members int) kind {
	return kind{
		name:     name,
		variable: "SHOP_MONGO_URL",
		byName:   members > 1,
		members:  members,
		files:    4096, // one per collection and index, kept open for a while after a drop
		program:  program{file: "mongod", apt: "mongodb-org", brew: "mongodb/brew/mongodb-community", pypi: mongod},
		argv:     mongoArgs,
		ready:    mongoReady,
		join:     initiate,
		url:      mongoURL,
		stop:     syscall.SIGTERM,
		quick:    syscall.SIGKILL,
	}
}

func mongoArgs(i *instance) []string {
	return []string{
		"--bind_ip", "127.0.0.1", "--port", strconv.Itoa(i.Ports[0]), "--nounixsocket",
		"--dbpath", i.Dir, "--replSet", mongoSet(i), "--oplogSize", "64", "--wiredTigerCacheSizeGB", "0.25",
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

// mongoSet returns the set's name. It contains the secret, so that a client refuses a
// foreign mongod that took the port.
func mongoSet(i *instance) string { return i.Kind + "-" + i.Secret }

func mongoURL(i *instance) string {
	var members []string
	for _, m := range i.cluster {
		members = append(members, m.addr())
	}
	return "mongodb://" + strings.Join(members, ",") + "/shop?replicaSet=" + mongoSet(i)
}

// initiate makes the set, with its members' addresses and not the host's name, and
// waits until each member has acknowledged a write.
func initiate(ctx context.Context, first *instance) error {
	var members bson.A
	for n, m := range first.cluster {
		members = append(members, bson.D{{Key: "_id", Value: n}, {Key: "host", Value: m.addr()}})
	}
	err := mongoDo(ctx, "mongodb://"+first.addr()+"/?directConnection=true", func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "replSetInitiate", Value: bson.D{
			{Key: "_id", Value: mongoSet(first)},
			{Key: "members", Value: members},
			{Key: "settings", Value: bson.D{{Key: "electionTimeoutMillis", Value: 2000}, {Key: "heartbeatIntervalMillis", Value: 500}}},
		}}}).Err()
	})
	if err != nil {
		return fmt.Errorf("replSetInitiate: %w", err)
	}
	if len(members) > 1 {
		if err := until(ctx, func() error { return mongoStepUp(ctx, first) }); err != nil {
			return fmt.Errorf("replSetStepUp: %w", err)
		}
	}
	return mongoWrite(ctx, first, len(first.cluster))
}

// mongoStepUp makes a member the primary, if a majority votes. An election by itself begins at the
// election timeout. Each attempt has its own client: one that got an error waits for a heartbeat.
func mongoStepUp(ctx context.Context, i *instance) error {
	return mongoDo(ctx, "mongodb://"+i.addr()+"/?directConnection=true", func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{{Key: "replSetStepUp", Value: 1}}).Err()
	})
}

// mongoReady checks that the process on the port is this member. If the member is
// in a set, mongoReady then writes with majority, which needs a primary.
func mongoReady(ctx context.Context, i *instance) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.addr())
	if err != nil {
		return err // the driver would retry until ctx ends
	}
	conn.Close()
	var inSet bool
	err = mongoDo(ctx, "mongodb://"+i.addr()+"/?directConnection=true", func(admin *mongo.Database) error {
		inSet, err = mongoMember(ctx, i, admin)
		return err
	})
	if err != nil || !inSet {
		return err
	}
	return mongoWrite(ctx, i, "majority")
}

// mongoMember reports whether the set has been initiated. It reads this from the data,
// because a starting member does not report it at first. It counts the documents instead
// of estimating, because after a SIGKILL the estimate may be 0.
func mongoMember(ctx context.Context, i *instance, admin *mongo.Database) (inSet bool, err error) {
	var status struct {
		PID  int
		Repl struct{ IsWritablePrimary, Secondary bool }
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		return false, err
	}
	if status.PID != i.snapshot().First.PID {
		return false, fmt.Errorf("a foreign mongod listens on %s", i.addr())
	}
	sets, err := admin.Client().Database("local").Collection("system.replset").CountDocuments(ctx, bson.D{})
	if err != nil || sets == 0 {
		return false, err
	}
	alone := len(i.cluster) == 1
	if !status.Repl.IsWritablePrimary && (alone || !status.Repl.Secondary) {
		return true, fmt.Errorf("%s is neither primary nor secondary yet", i.Name)
	}
	return true, nil
}

// mongoWrite writes a note to the oplog, which changes no database, and returns when
// it is acknowledged with write concern w.
func mongoWrite(ctx context.Context, i *instance, w any) error {
	return mongoDo(ctx, mongoURL(i), func(admin *mongo.Database) error {
		return admin.RunCommand(ctx, bson.D{
			{Key: "appendOplogNote", Value: 1},
			{Key: "data", Value: bson.D{{Key: "ready", Value: i.Name}}},
			{Key: "writeConcern", Value: bson.D{{Key: "w", Value: w}}},
		}).Err()
	})
}

func mongoDo(ctx context.Context, url string, do func(admin *mongo.Database) error) error {
	// Disconnect can take one heartbeat interval, which is 10 s by default.
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetHeartbeatInterval(500 * time.Millisecond))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return do(client.Database("admin"))
}
