package mongofault

import (
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// statement is what is understood of a command.
type statement struct {
	command       string
	collection    string
	session       string
	number        int64 // of the transaction in its session
	inTransaction bool
	lockID        bson.ObjectID // of a lock; zero: it is none
}

const (
	commit = "commitTransaction"
	abort  = "abortTransaction"
)

// understand reads a command; false: it is none that matters. Those that end a
// transaction go to the database admin.
func understand(body bson.Raw) (s statement, matters bool) {
	first, err := body.IndexErr(0)
	if err != nil {
		return s, false
	}
	s.command = first.Key()
	s.collection, _ = first.Value().StringValueOK()
	database, _ := body.Lookup("$db").StringValueOK()
	ends := s.command == commit || s.command == abort
	if !ends && slices.Contains([]string{"admin", "local", "config"}, database) || slices.Contains(ignored, s.command) {
		return s, false
	}
	if _, single := body.Lookup("autocommit").BooleanOK(); single { // it is never true
		s.inTransaction = true
		_, id, _ := body.Lookup("lsid", "id").BinaryOK()
		s.session = string(id)
		s.number, _ = body.Lookup("txnNumber").AsInt64OK()
	}
	if s.command == "findAndModify" && s.collection == "wallets" {
		s.lockID = lockOf(body)
	}
	return s, true
}

// ignored are commands that have nothing to do with what is read or written.
var ignored = []string{"hello", "isMaster", "ismaster", "ping", "endSessions", "getMore", "killCursors"}

// lockOf is the id in {$set: {lockId: <ObjectId>}}, and nothing else beside it.
func lockOf(body bson.Raw) (id bson.ObjectID) {
	update, _ := body.Lookup("update").DocumentOK()
	set, _ := update.Lookup("$set").DocumentOK()
	for _, d := range []bson.Raw{update, set} {
		if fields, err := d.Elements(); err != nil || len(fields) != 1 {
			return id
		}
	}
	id, _ = set.Lookup("lockId").ObjectIDOK()
	return id
}
