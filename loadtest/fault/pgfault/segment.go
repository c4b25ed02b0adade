// SPDX-License-Identifier: MIT

package pgfault

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"

	"shop/locking/idempotency/pgtx"
	"shop/transfer"
)

// segment is all that a client sends before it waits for an answer: one query, or a
// pipeline up to its Sync.
type segment struct {
	raw     []byte
	asks    bool // the server will answer
	sent    []statement
	tx      *transaction // the transaction of its last statement
	begins  bool         // that transaction begins in this segment
	touches bool         // the first segment of its transaction that writes to accounts
	commits bool         // ends a transaction that has written money

	once     sync.Once
	answered chan struct{} // closed when the fields below are final
	tags     []string      // of the executed statements, in order
	refusal  *pgproto3.ErrorResponse
}

// statement is a statement to be executed.
type statement struct {
	sql    string             // in lower case, with single blanks
	money  transfer.Statement // what it does to money
	params [][]byte
}

// fence returns the fence that a guard writes, 0 of other statements.
func (s statement) fence() int64 {
	if s.money != transfer.WritesFence || len(s.params) < 2 || len(s.params[1]) != 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(s.params[1]))
}

// transaction is a client's transaction, over one or more segments.
type transaction struct {
	begun   bool   // by a BEGIN; else the transaction ends with its segment
	touched bool   // has written to accounts
	wrote   bool   // … more than a fence
	over    bool   // the client has sent its end
	fence   int64  // with which it guards its accounts; 0: none
	batch   bool   // has inserted the keys of several requests
	key     string // the idempotency key that it has inserted, with its client
	plain   string // … without its client

	once      sync.Once
	ended     chan struct{} // closed when committed is final
	committed bool
}

func (p *segment) end() {
	p.once.Do(func() { close(p.answered) })
	if p.tx != nil {
		p.tx.end()
	}
}

func (t *transaction) end() { t.once.Do(func() { close(t.ended) }) }

// writeKey is the statement that stores an idempotency key, and writeKeys the one that stores several.
var writeKey, writeKeys = normalize(pgtx.InsertKey), normalize(pgtx.InsertKeys)

// understand parses one message of the client. whole: the message ends a segment.
func (c *conn) understand(p *segment, kind byte, body []byte) (whole bool, err error) {
	switch kind {
	case 'P':
		var m pgproto3.Parse
		err = m.Decode(body)
		c.prepared[m.Name] = normalize(m.Query)
	case 'B':
		var m pgproto3.Bind
		err = m.Decode(body)
		c.add(p, c.prepared[m.PreparedStatement], m.Parameters)
	case 'D', 'E', 'C':
	case 'Q':
		var m pgproto3.Query
		err = m.Decode(body)
		c.add(p, normalize(m.String), nil)
		return c.ask(p), err
	case 'S', 'F':
		return c.ask(p), nil
	default: // a password, a copy, a flush, a termination: irrelevant here
		return true, nil
	}
	return false, err
}

// ask marks the end of a segment that the server will answer.
func (c *conn) ask(p *segment) bool {
	p.asks = true
	if c.tx != nil && !c.tx.begun {
		c.tx.over = true
	}
	return true
}

// add adds a statement to its segment and its transaction.
func (c *conn) add(p *segment, sql string, params [][]byte) {
	s := statement{sql, transfer.StatementOf(sql), params}
	p.sent = append(p.sent, s)
	begin := strings.HasPrefix(s.sql, "begin")
	if begin || c.tx == nil || c.tx.over {
		c.tx = &transaction{begun: begin, ended: make(chan struct{})}
		p.begins = begin
	}
	t := c.tx
	p.tx = t
	switch {
	case s.money.Account():
		p.touches = p.touches || !t.touched
		t.touched = true
		t.wrote = t.wrote || s.money == transfer.WritesBalance
		t.fence = cmp.Or(s.fence(), t.fence)
	case s.money == transfer.WritesEntry:
		t.wrote = true
	case strings.HasPrefix(s.sql, writeKey):
		t.key = string(bytes.Join(s.params[:min(2, len(s.params))], nil))
		if len(s.params) > 1 {
			t.plain = string(s.params[1])
		}
	case strings.HasPrefix(s.sql, writeKeys):
		t.batch = true
	case strings.HasPrefix(s.sql, "commit"):
		p.commits = p.commits || t.wrote
		t.over = true
	case strings.HasPrefix(s.sql, "rollback"):
		t.over = true
	}
}

// noteAnswer parses one message of the server, for the segment that it answers.
func (c *conn) noteAnswer(kind byte, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.pending) == 0 {
		return // belongs to the start of the connection
	}
	p := c.pending[0]
	switch kind {
	case 'C':
		var m pgproto3.CommandComplete
		_ = m.Decode(body)
		p.tags = append(p.tags, string(m.CommandTag))
	case 'E':
		p.refusal = &pgproto3.ErrorResponse{}
		_ = p.refusal.Decode(body)
	case 'Z':
		c.pending = c.pending[1:]
		c.open = p.tx
		if body[0] == 'I' && p.tx != nil { // no transaction is open any more
			p.tx.committed = len(p.tags) > 0 && p.tags[len(p.tags)-1] == "COMMIT"
			p.tx.end()
			c.open = nil
		}
		p.once.Do(func() { close(p.answered) })
	}
}

// refused reports whether the server did not execute the segment's writes to accounts.
func (p *segment) refused() bool {
	if p.refusal != nil {
		return p.refusal.SeverityUnlocalized == "ERROR" // a FATAL ends the connection, and says nothing about the segment
	}
	return p.missed()
}

// missed reports whether a write to accounts matched no row.
func (p *segment) missed() bool {
	for i, s := range p.sent {
		if s.money.Account() && i < len(p.tags) && p.tags[i] == "UPDATE 0" {
			return true
		}
	}
	return false
}

// normalize returns SQL in lower case on one line.
func normalize(sql string) string { return strings.ToLower(strings.Join(strings.Fields(sql), " ")) }
