// SPDX-License-Identifier: MIT

package pgtest

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Statement is a statement that was sent, and whether its ctx had a deadline.
type Statement struct {
	SQL     string
	Args    []any
	Bounded bool
}

// Statements records what is sent through a pool.
type Statements struct {
	mu  sync.Mutex
	all []Statement
}

// Recording opens another pool to the database, and records what is sent through it.
func (d *Database) Recording() (*pgxpool.Pool, *Statements) {
	d.T.Helper()
	s := &Statements{}
	config := d.Pool.Config()
	config.ConnConfig.Tracer = s
	return Open(d.T, config), s
}

// TraceQueryStart implements pgx.QueryTracer.
func (s *Statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, bounded := ctx.Deadline()
	s.all = append(s.all, Statement{q.SQL, q.Args, bounded})
	return ctx
}

// TraceQueryEnd implements pgx.QueryTracer.
func (s *Statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// All returns the statements so far whose SQL contains text.
func (s *Statements) All(text string) (found []Statement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.all {
		if strings.Contains(one.SQL, text) {
			found = append(found, one)
		}
	}
	return found
}

// plan is a node of a plan, as EXPLAIN (ANALYZE, FORMAT JSON) describes it.
type plan struct {
	Relation string  `json:"Relation Name"`
	Rows     float64 `json:"Actual Rows"` // of each loop
	Filtered float64 `json:"Rows Removed by Filter"`
	Loops    float64 `json:"Actual Loops"`
	Plans    []plan
}

func (p plan) read() (rows float64) {
	if p.Relation != "" {
		rows = (p.Rows + p.Filtered) * p.Loops
	}
	for _, child := range p.Plans {
		rows += child.read()
	}
	return rows
}

// RowsRead runs a statement once more, rolls it back, and returns how many rows its scans have read of the tables.
func (d *Database) RowsRead(s Statement) int64 {
	d.T.Helper()
	ctx := context.Background()
	tx, err := d.Pool.Begin(ctx)
	if err != nil {
		d.T.Fatal(err)
	}
	defer tx.Rollback(ctx)
	var text []byte
	if err := tx.QueryRow(ctx, "EXPLAIN (ANALYZE, FORMAT JSON) "+s.SQL, s.Args...).Scan(&text); err != nil {
		d.T.Fatalf("%v: %s", err, s.SQL)
	}
	var plans []struct{ Plan plan }
	if err := json.Unmarshal(text, &plans); err != nil {
		d.T.Fatal(err)
	}
	return int64(plans[0].Plan.read())
}
