// SPDX-License-Identifier: MIT

package wallet_test

import (
	"context"
	"testing"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"

	"shop/compose/local/stack"
	"shop/compose/local/stack/stacktest"
)

// set is a private replica set of three members. The test may pause and kill them.
type set struct {
	t       *testing.T
	url     string
	members []*stack.Server
	direct  map[*stack.Server]*mongo.Client
}

func newSet(t *testing.T) *set {
	t.Helper()
	s := &set{t: t, members: stacktest.Private(t, "mongo3"), direct: map[*stack.Server]*mongo.Client{}}
	s.url = s.members[0].Env["SHOP_MONGO_URL"]
	for _, member := range s.members {
		client, err := mongo.Connect(options.Client().ApplyURI("mongodb://" + member.Addr + "/?directConnection=true"))
		s.must(err)
		t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
		s.direct[member] = client
	}
	return s
}

func (s *set) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// roles returns the current primary, and the other members.
func (s *set) roles() (primary *stack.Server, others []*stack.Server) {
	s.t.Helper()
	for _, member := range s.members {
		var hello struct{ IsWritablePrimary bool }
		s.must(s.direct[member].Database("admin").RunCommand(s.t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
		if hello.IsWritablePrimary && primary == nil {
			primary = member
		} else {
			others = append(others, member)
		}
	}
	return primary, others
}

// replicate turns replication "on" or "off" at members that are not the primary. Stopping their
// processes is not enough: what the primary sends them waits in their sockets.
func (s *set) replicate(members []*stack.Server, state string) {
	s.t.Helper()
	for _, m := range members {
		mode := map[string]string{"on": "off", "off": "alwaysOn"}[state]
		s.must(s.direct[m].Database("admin").RunCommand(s.t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "stopReplProducer"}, {Key: "mode", Value: mode},
		}).Err())
	}
}

// atPrimary runs a command with write concern 1: only the primary acknowledges it.
func (s *set) atPrimary(primary *stack.Server, database string, command bson.D) {
	s.t.Helper()
	command = append(command, bson.E{Key: "writeConcern", Value: bson.D{{Key: "w", Value: 1}}})
	s.must(s.direct[primary].Database(database).RunCommand(s.t.Context(), command).Err())
}

// operations counts the operations that one member has, whether or not a majority has them.
func (s *set) operations(member *stack.Server, database string) int {
	s.t.Helper()
	db := s.direct[member].Database(database, options.Database().SetReadConcern(readconcern.Local()))
	n, err := db.Collection("wallet_operations").CountDocuments(s.t.Context(), bson.D{})
	s.must(err)
	return int(n)
}

// lockID returns the lockId of a wallet at one member.
func (s *set) lockID(member *stack.Server, database string, id uuid.UUID) (lockID bson.ObjectID) {
	s.t.Helper()
	db := s.direct[member].Database(database, options.Database().SetReadConcern(readconcern.Local()))
	var w struct {
		LockID bson.ObjectID `bson:"lockId"`
	}
	s.must(db.Collection("wallets").FindOne(s.t.Context(), bson.D{{Key: "_id", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: id[:]}}}).Decode(&w))
	return w.LockID
}

// mustAgree waits until every member has replicated everything, and compares their contents.
func (s *set) mustAgree(c *fixture) {
	s.t.Helper()
	c.admin(bson.D{
		{Key: "appendOplogNote", Value: 1},
		{Key: "data", Value: bson.D{{Key: "the", Value: "end"}}},
		{Key: "writeConcern", Value: bson.D{{Key: "w", Value: len(s.members)}}},
	})
	hashes := map[string]bool{}
	for _, member := range s.members {
		var answer struct{ MD5 string }
		s.must(s.direct[member].Database(c.db.Name()).RunCommand(s.t.Context(), bson.D{{Key: "dbHash", Value: 1}}).Decode(&answer))
		hashes[answer.MD5] = true
	}
	if len(hashes) != 1 {
		s.t.Errorf("M4: the members differ: %v", hashes)
	}
}
