// SPDX-License-Identifier: MIT

package pgfault

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"shop/loadtest/fault"
	"shop/transfer"
)

// Way is how a holder became late.
type Way string

// The ways.
const (
	Revoked Way = "revoked" // its lease was revoked while its segment was held back
	Stopped Way = "stopped" // it was stopped until its lease had expired
)

// LateRecord is one late write, step by step.
type LateRecord struct {
	Replica                int // of the old holder, from 0
	Way                    Way
	SQL                    []string  // of the segment
	Account                uuid.UUID // the first one that the newer holder wrote
	OldFence, NewFence     int64     // 0: the strategy has none
	OldVersion, NewVersion int64     // of the account: when the segment was held, and after the newer holder's write

	Held      time.Time
	Taken     time.Time // the lease was revoked, or the replica stopped
	Overtaken time.Time // a newer holder has written; zero: none in time
	Delivered time.Time
	Answered  time.Time // zero: no answer
	Resumed   time.Time // zero: the replica was not stopped

	Answer    string // "UPDATE 0"
	Refused   bool   // the server did not execute the segment's writes to accounts
	Committed bool   // the server executed them, and committed the transaction

	accounts []uuid.UUID
}

// Late reports whether the segment was delivered after the write of a newer holder.
func (r LateRecord) Late() bool { return !r.Overtaken.IsZero() && !r.Delivered.IsZero() }

// hold records the segment that was held back.
func (r *LateRecord) hold(p *segment) {
	r.Held = time.Now()
	r.accounts = accountsOf(p)
	r.Account = r.accounts[0]
	for _, s := range p.sent {
		r.SQL = append(r.SQL, s.sql)
		r.OldFence = cmp.Or(s.fence(), r.OldFence)
	}
}

// accountsOf returns the accounts that a segment writes: WHERE id = $1, in binary format.
func accountsOf(p *segment) (ids []uuid.UUID) {
	for _, s := range p.sent {
		if !s.money.Account() || len(s.params) == 0 {
			continue
		}
		if id, err := uuid.FromBytes(s.params[0]); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// accountState holds the columns of an account that change with its holder.
type accountState struct {
	id                      uuid.UUID
	balance, version, fence int64
}

// readAccounts reads the state of accounts, in order of id.
func readAccounts(ctx context.Context, db *pgx.Conn, ids []uuid.UUID) ([]accountState, error) {
	rows, _ := db.Query(ctx, `SELECT id, balance, version, fence FROM accounts WHERE id = ANY($1) ORDER BY id`, ids)
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (s accountState, err error) {
		err = row.Scan(&s.id, &s.balance, &s.version, &s.fence)
		return s, err
	})
}

// overtaken records a newer holder that has changed a balance since: with a newer fence than the
// late holder's, or any writer if the strategy has no fences. A hold changes no balance, so that a
// late write after it would leave the balances right.
func (r *LateRecord) overtaken(before, now []accountState) bool {
	for i := range min(len(before), len(now)) { // accounts are never deleted
		b, n := before[i], now[i]
		if n.balance == b.balance || r.OldFence > 0 && n.fence <= r.OldFence {
			continue
		}
		r.Overtaken, r.Account = time.Now(), n.id
		r.OldVersion, r.NewVersion, r.NewFence = b.version, n.version, n.fence
		return true
	}
	return false
}

// answer records the server's answer to the segment.
func (r *LateRecord) answer(p *segment) {
	r.Refused = p.refused()
	switch {
	case p.missed():
		r.Answer = "UPDATE 0"
	case p.refusal != nil:
		r.Answer = p.refusal.Message
	case len(p.tags) > 0:
		r.Answer = p.tags[len(p.tags)-1]
	default:
		return // the connection ended instead
	}
	r.Answered = time.Now()
}

// end records the outcome of the transaction.
func (r *LateRecord) end(p *segment) { r.Committed = p.tx.committed && !r.Refused }

func (r LateRecord) event() fault.Event {
	e := fault.Event{What: fmt.Sprintf("replica %d: write held, lease %s", r.Replica+1, r.Way), At: r.Held, Until: time.Now()}
	if !r.Late() {
		return e
	}
	e.Hits, e.Seen = 1, map[string]int64{"late_writes": 1, "late_" + string(r.Way): 1}
	outcome := "no answer"
	switch {
	case r.Refused:
		outcome = "refused"
		e.Seen["late_refused"] = 1
	case r.Committed:
		outcome = "committed"
		e.Seen["late_committed"] = 1
		if r.OldFence > 0 {
			e.Seen["fence_ignored"] = 1
		}
	case r.Answer != "":
		outcome = "not committed"
	}
	e.What = fmt.Sprintf("replica %d: late write (%s), %s", r.Replica+1, r.Way, outcome)
	return e
}

// Diagram returns the record as a mermaid sequence diagram. Times count from the
// moment at which the segment was held back.
func (r LateRecord) Diagram() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	at := func(t time.Time) string { return fmt.Sprintf("%.1f ms", float64(t.Sub(r.Held).Microseconds())/1000) }
	b.WriteString("sequenceDiagram\n")
	line("participant A as replica %d", r.Replica+1)
	line("participant L as etcd")
	line("participant N as network")
	line("participant P as PostgreSQL")
	line("participant B as the next holder")
	line("L->>A: account %s is yours%s", r.Account, fenceText(r.OldFence))
	line("A->>N: 0 ms: %s", strings.Join(brief(r.SQL), ", "))
	line("Note over N: held")
	if r.Way == Revoked {
		line("Note over L: %s: lease revoked, replica %d does not know", at(r.Taken), r.Replica+1)
	} else {
		line("Note over A: %s: stopped (SIGSTOP)", at(r.Taken))
		line("Note over L: the lease runs out")
	}
	line("L->>B: account %s is yours%s", r.Account, fenceText(r.NewFence))
	line("B->>P: until %s: commits%s%s", at(r.Overtaken), fenceText(r.NewFence), versions(r.OldVersion, r.NewVersion))
	line("N->>P: %s: delivered, late", at(r.Delivered))
	line("P-->>N: %s: %s", at(cmp.Or(r.Answered, r.Delivered)), cmp.Or(quiet.Replace(r.Answer), "no answer"))
	if !r.Resumed.IsZero() {
		line("Note over A: %s: goes on (SIGCONT)", at(r.Resumed))
	}
	switch {
	case r.Refused:
		line("Note over P: refused, what the next holder wrote stands")
	case r.Committed:
		line("Note over P: committed, what the next holder wrote is gone")
	}
	return b.String()
}

// quiet replaces characters that have a meaning in mermaid.
var quiet = strings.NewReplacer(";", ",", "#", "", "\n", " ")

func fenceText(fence int64) string {
	if fence == 0 {
		return ""
	}
	return fmt.Sprintf(", fence %d", fence)
}

// versions describes a change of version; it is empty if only the fence was written.
func versions(before, now int64) string {
	if before == now {
		return ""
	}
	return fmt.Sprintf(", version %d → %d", before, now)
}

// brief abbreviates statements, and drops repetitions.
func brief(sql []string) (list []string) {
	for _, s := range sql {
		words := strings.Fields(s)
		switch {
		case len(words) == 0:
			continue
		case transfer.StatementOf(s).Account():
			s = strings.Join(words[:4], " ")
		case strings.HasPrefix(s, "insert into"), strings.HasPrefix(s, "update"), strings.HasPrefix(s, "delete from"):
			s = strings.Join(words[:min(3, len(words))], " ")
		default:
			s = words[0]
		}
		if len(list) == 0 || list[len(list)-1] != s {
			list = append(list, s)
		}
	}
	return list
}
