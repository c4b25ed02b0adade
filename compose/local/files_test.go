package main

import (
	"context"
	"os"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// Goal: a login's limit of open files, 1,024 by default, is not a server's.

// limited runs exec for a MongoDB in a shell that has set a limit.
func limited(t *testing.T, limit string) *session {
	t.Helper()
	cmd := local(t, "-c", limit+` && exec "$0" exec --servers mongo -- sh -c 'echo $$ $SHOP_STACK; `+forever2+`'`, os.Args[0])
	cmd.Path, cmd.Args[0] = shell(t), "sh"
	return await(t, cmd)
}

// mongod takes four fifths of its limit as connections.
func TestFiles_AServerGetsTheHardLimitNotTheSoftOne(t *testing.T) {
	t.Parallel()
	s := limited(t, "ulimit -S -n 1024")
	client, err := mongo.Connect(options.Client().ApplyURI(attach(t, s, "mongo").Env["SHOP_MONGO_URL"]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	var status struct{ Connections struct{ Available int } }
	if err := client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "serverStatus", Value: 1}}).Decode(&status); err != nil {
		t.Fatal(err)
	}
	if got := status.Connections.Available; got <= 1024 {
		t.Errorf("%d connections are available: the soft limit of open files is still 1024", got)
	}
}

func TestFiles_AHardLimitThatIsTooLowIsToldWithTheNumber(t *testing.T) {
	t.Parallel()
	cmd := local(t, "-c", `ulimit -n 1024 && exec "$0" exec --servers mongo -- true`, os.Args[0])
	cmd.Path, cmd.Args[0], cmd.Stderr = shell(t), "sh", nil
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatal("it started with 1024 open files")
	}
	wantContains(t, string(out), "mongo needs 4096 open files", "the hard limit is 1024", "what to do", "limits.conf")
}
