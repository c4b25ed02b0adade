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

// MongoDB as a replica set of one, or of three: transactions need a set. Test
// commands are on (failCommand), and a parameter such as
// transactionLifetimeLimitSeconds is changed while it runs, by the command
// setParameter, on each member; a start brings the default back.
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
		files:    4096, // two for each collection and index, kept open for minutes after a drop
		program:  program{file: "mongod", apt: "mongodb-org", brew: "mongodb/brew/mongodb-community", wheel: mongod},
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
		// The journal as ever, but in small files: else it takes 300 MB from the start.
		"--wiredTigerEngineConfigString", "log=(enabled=true,path=journal,compressor=snappy,file_max=16MB)",
		"--setParameter", "enableTestCommands=1",
		"--setParameter", "diagnosticDataCollectionEnabled=false", // it only costs
		// A dropped collection keeps its files, and keeps them open, until the
		// history that snapshots may ask for (300 s) and a checkpoint have passed.
		"--setParameter", "minSnapshotHistoryWindowInSeconds=5", "--syncdelay", "10",
		// In a set of three it would wait 15 s for its clients to leave.
		"--setParameter", "shutdownTimeoutMillisForSignaledShutdown=100",
		"--quiet",
	}
}

// mongoSet holds the secret: a client whose server's port was lost to another
// mongod refuses that one.
func mongoSet(i *instance) string { return i.Kind + "-" + i.Secret }

func mongoURL(i *instance) string {
	var members []string
	for _, m := range i.cluster {
		members = append(members, m.addr())
	}
	return "mongodb://" + strings.Join(members, ",") + "/shop?replicaSet=" + mongoSet(i)
}

// initiate makes the set, by addresses and not by the host's name, and waits
// until every member has written what the primary wrote.
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
	return mongoWrite(ctx, first, len(first.cluster))
}

// mongoReady asks the member who it is; and, once it is in a set, for a write
// with majority: that needs a primary, which is what clients wait for.
func mongoReady(ctx context.Context, i *instance) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", i.addr())
	if err != nil {
		return err // at once: the driver would go on asking
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

// mongoMember tells whether the set was made already: that is found among the
// data, since a member that starts does not know it for a moment. The document is
// counted, not estimated: after a SIGKILL the estimate may be 0.
func mongoMember(ctx context.Context, i *instance, admin *mongo.Database) (inSet bool, err error) {
	var status struct {
		PID  int
		Repl struct{ IsWritablePrimary, Secondary bool }
	}
	if err := admin.RunCommand(ctx, bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		return false, err
	}
	if status.PID != i.now().First.PID {
		return false, fmt.Errorf("a mongod that is not ours answers on %s", i.addr())
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

// mongoWrite writes a note into the set's log of operations, which leaves
// nothing in any database, and returns when as many members as w says have it.
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
	// Disconnect can last for a heartbeat, whose default is 10 s.
	client, err := mongo.Connect(options.Client().ApplyURI(url).SetHeartbeatInterval(500 * time.Millisecond))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.WithoutCancel(ctx)) }()
	return do(client.Database("admin"))
}
