// SPDX-License-Identifier: MIT

package mongolock

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/locktest"
	"shop/locking/servertest"
	"shop/locking/servertest/daemon/mongod"
)

// primaryOf returns the address of the primary, as the target of a proxy.
func primaryOf(t testing.TB, u string) string {
	t.Helper()
	var hello struct {
		Primary string `bson:"primary"`
	}
	if err := connect(t, u).Database("admin").RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello); err != nil {
		t.Fatal(err)
	}
	return hello.Primary
}

// startServer starts a mongod for one test, as a replica set of one member.
func startServer(t testing.TB) *servertest.Server {
	t.Helper()
	return servertest.Start(t, mongod.Kind(1))
}

// direct calls do with a client of the server, whatever state its set is in.
func direct(s *servertest.Server, do func(admin *mongo.Database) error) error {
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + s.Addr + "/?directConnection=true"))
	if err != nil {
		return err
	}
	defer func() { _ = client.Disconnect(context.Background()) }()
	return do(client.Database("admin"))
}

// command sends c to the server until it succeeds, whatever state its set is in.
func command(t testing.TB, s *servertest.Server, c bson.D) {
	t.Helper()
	locktest.Eventually(t, c[0].Key, func() bool {
		return direct(s, func(admin *mongo.Database) error { return admin.RunCommand(within(t, time.Second), c).Err() }) == nil
	})
}

// newProxy makes a proxy that disturbs lock requests: an OP_MSG whose command is
// findAndModify. The command follows the header, the flags, the kind of section, the
// length of the document, and the type of its first element.
func newProxy(t testing.TB, addr string) *servertest.Faults {
	t.Helper()
	return servertest.NewFaults(t, addr, func(message []byte) bool {
		const opMsg, commandAt = 2013, 16 + 4 + 1 + 4 + 1
		return len(message) > commandAt && binary.LittleEndian.Uint32(message[12:]) == opMsg &&
			bytes.HasPrefix(message[commandAt:], []byte("findAndModify\x00"))
	})
}

// through is the URL of the proxy with a direct connection: a client that discovers the
// members of the set would bypass the proxy.
func through(p *servertest.Faults) string { return "mongodb://" + p.Addr + "/?directConnection=true" }
