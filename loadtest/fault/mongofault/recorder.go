// SPDX-License-Identifier: MIT

package mongofault

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// recorder checks statements against the rules. It keeps the last transaction of each
// session, and the owner of each lockId.
type recorder struct {
	mu       sync.Mutex
	count    int64
	open     map[string]transaction
	lockIDs  map[bson.ObjectID]owner
	breaches map[breach]int
	refusals int64    // locks refused because of another transaction
	doubts   []string // keys of operations whose commit got no clear answer
}

// owner is the transaction of a lockId.
type owner struct {
	session string
	number  int64
}

// transaction is the last transaction of a session.
type transaction struct {
	number  int64
	refused string // its first failed statement, with the error
	key     string // idempotency key of the operation that it has inserted
}

// breach is a kind of breach of a rule.
type breach struct {
	rule  int
	reads bool // by a statement that only reads
	what  string
}

func newRecorder() *recorder {
	return &recorder{open: map[string]transaction{}, lockIDs: map[bson.ObjectID]owner{}, breaches: map[breach]int{}}
}

// record checks a statement before it goes to the server.
func (r *recorder) record(s statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.inTransaction {
		r.outside(s)
		return
	}
	t, known := r.open[s.session]
	switch ends := s.command == commit || s.command == abort; {
	case ends && s.command == commit && t.number == s.number && t.refused != "":
		r.breaches[breach{4, false, "commit after " + t.refused}]++
	case ends:
	case !known || t.number != s.number:
		r.begin(s)
	}
	if s.key != "" {
		t := r.open[s.session]
		t.key = s.key
		r.open[s.session] = t
	}
	if s.lockID.IsZero() {
		return
	}
	who := owner{s.session, s.number}
	if before, had := r.lockIDs[s.lockID]; had && before != who {
		r.breaches[breach{2, false, "the lockId was used by another transaction"}]++
	}
	r.lockIDs[s.lockID] = who
}

// begin records the first statement of a transaction.
func (r *recorder) begin(s statement) {
	r.count++
	r.open[s.session] = transaction{number: s.number}
	if s.lockID.IsZero() {
		r.breaches[breach{1, false, "a transaction begins with " + s.name() + " instead of the lock"}]++
	}
}

// outside records a statement that belongs to no transaction.
func (r *recorder) outside(s statement) {
	switch s.command {
	case "find":
		r.breaches[breach{3, true, s.name() + " is outside of a transaction"}]++
	case "insert", "update", "delete", "findAndModify":
		r.breaches[breach{3, false, s.name() + " is outside of a transaction"}]++
	}
}

func (s statement) name() string { return s.command + " " + s.collection }

// refused records that a statement failed. It ignores failed commits and aborts, since they
// end their transaction.
func (r *recorder) refused(s statement, code int64) {
	if !s.inTransaction || s.command == commit || s.command == abort {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.lockID.IsZero() && code == writeConflict {
		r.refusals++
	}
	if t := r.open[s.session]; t.number == s.number && t.refused == "" {
		t.refused = fmt.Sprintf("%s failed with error %d", s.name(), code)
		r.open[s.session] = t
	}
}

// writeConflict is the error of a write to a document that another open transaction has written.
const writeConflict = 112

// inDoubt records that a commit has, or may have, succeeded without a clear answer to its client.
func (r *recorder) inDoubt(s statement) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.open[s.session]; t.number == s.number && t.key != "" {
		r.doubts = append(r.doubts, t.key)
	}
}

// takeDoubts returns the keys of the operations that were left in doubt since the last call.
func (r *recorder) takeDoubts() (keys []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys, r.doubts = r.doubts, nil
	return keys
}

// report lists the breaches of the rules of a strategy.
func (r *recorder) report(strategy string) (transactions int64, breaches []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for b, times := range r.breaches {
		if strategy == "inc" && (b.rule < 3 || b.reads) {
			continue
		}
		breaches = append(breaches, fmt.Sprintf("R%d: %s, %d×", b.rule, b.what, times))
	}
	slices.SortFunc(breaches, cmp.Compare[string])
	return r.count, breaches
}

// statement holds the relevant parts of a command.
type statement struct {
	command       string
	collection    string
	session       string
	number        int64 // of the transaction in its session
	inTransaction bool
	lockID        bson.ObjectID // of a lock; zero: the statement is no lock
	key           string        // idempotency key of the inserted operation; "": none
}

const (
	commit = "commitTransaction"
	abort  = "abortTransaction"
)

// understand parses a command; false: the command is irrelevant. A commit or an abort counts
// even though it goes to the database admin.
func understand(m message) (s statement, matters bool) {
	body := m.body()
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
	if s.command == "insert" && s.collection == "wallet_operations" {
		s.key, _ = m.first().Lookup("key").StringValueOK()
	}
	return s, true
}

// ignored lists commands that neither begin a read nor write.
var ignored = []string{"hello", "isMaster", "ismaster", "ping", "endSessions", "getMore", "killCursors"}

// lockOf returns the id of an update that is exactly {$set: {lockId: <ObjectId>}}.
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
