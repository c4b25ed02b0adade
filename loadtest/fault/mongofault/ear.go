package mongofault

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// ear remembers what matters of what it heard: for each session the transaction
// that is open, and for each lockId who had it.
type ear struct {
	mu       sync.Mutex
	count    int64
	open     map[string]transaction
	lockIDs  map[bson.ObjectID]owner
	breaches map[breach]int
}

// owner of a lockId.
type owner struct {
	session string
	number  int64
}

// transaction is the last one of a session.
type transaction struct {
	number  int64
	refused string // the statement that was answered with an error, and with which
}

// breach of a rule, of which there may be many.
type breach struct {
	rule  int
	reads bool // and does not write
	what  string
}

func newEar() *ear {
	return &ear{open: map[string]transaction{}, lockIDs: map[bson.ObjectID]owner{}, breaches: map[breach]int{}}
}

// hear notes a statement before it goes to the server.
func (e *ear) hear(s statement) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !s.inTransaction {
		e.outside(s)
		return
	}
	t, known := e.open[s.session]
	switch ends := s.command == commit || s.command == abort; {
	case ends && s.command == commit && t.number == s.number && t.refused != "":
		e.breaches[breach{4, false, "commit behind " + t.refused}]++
	case ends:
	case !known || t.number != s.number:
		e.begin(s)
	}
	if s.lockID.IsZero() {
		return
	}
	who := owner{s.session, s.number}
	if before, had := e.lockIDs[s.lockID]; had && before != who {
		e.breaches[breach{2, false, "the lockId is one that another transaction had"}]++
	}
	e.lockIDs[s.lockID] = who
}

// begin hears the first statement of a transaction.
func (e *ear) begin(s statement) {
	e.count++
	e.open[s.session] = transaction{number: s.number}
	if s.lockID.IsZero() {
		e.breaches[breach{1, false, "a transaction begins with " + s.name() + ", and not with the lock"}]++
	}
}

// outside hears a statement that belongs to no transaction.
func (e *ear) outside(s statement) {
	switch s.command {
	case "find":
		e.breaches[breach{3, true, s.name() + " is outside of a transaction"}]++
	case "insert", "update", "delete", "findAndModify":
		e.breaches[breach{3, false, s.name() + " is outside of a transaction"}]++
	}
}

func (s statement) name() string { return s.command + " " + s.collection }

// refused notes that the server answered a statement with an error. That of a
// commit, or an abort, is for whoever ends the transaction.
func (e *ear) refused(s statement, code int64) {
	if !s.inTransaction || s.command == commit || s.command == abort {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t := e.open[s.session]; t.number == s.number && t.refused == "" {
		t.refused = fmt.Sprintf("%s, which was answered with error %d", s.name(), code)
		e.open[s.session] = t
	}
}

// tell lists the breaches of the rules of a strategy.
func (e *ear) tell(strategy string) (transactions int64, breaches []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for b, times := range e.breaches {
		if strategy == "inc" && (b.rule < 3 || b.reads) {
			continue
		}
		breaches = append(breaches, fmt.Sprintf("R%d: %s, %d×", b.rule, b.what, times))
	}
	slices.SortFunc(breaches, cmp.Compare[string])
	return e.count, breaches
}
