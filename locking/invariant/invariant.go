// SPDX-License-Identifier: MIT

// Package invariant runs queries that find stored data which violates an invariant.
//
// An invariant is a sentence that is true of the stored data at every moment, such as
// "stock = opening - sold + cancelled". A Check is one query that returns the ids of
// the violations: no row means that the invariant holds. Each check is one statement,
// so it reads one snapshot and may run during traffic. Each lesson keeps its checks
// beside its code; the proof, `shop audit` and /v1/audit run the same checks.
package invariant

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Invariant is a sentence that must be true.
type Invariant struct {
	Code  string // S1
	Name  string // stock-balance
	Means string
}

// String is its name, with its code: stock-balance (S1).
func (i Invariant) String() string {
	if i.Name == i.Code {
		return i.Code
	}
	return i.Name + " (" + i.Code + ")"
}

// OncePerKey is an invariant of every Set.
var OncePerKey = Invariant{
	Code: "I-ONCE", Name: "once-per-key",
	Means: "a key has one effect, and every final answer to it is the same, byte for byte",
}

// Find returns the invariant with this code. If it is not in the list, only the code is set.
func Find(list []Invariant, code string) Invariant {
	i := slices.IndexFunc(append([]Invariant{OncePerKey}, list...), func(i Invariant) bool { return i.Code == code })
	switch {
	case i < 0:
		return Invariant{Code: code, Name: code}
	case i == 0:
		return OncePerKey
	}
	return list[i-1]
}

// Set holds what can be checked in one place: a database, or the replies that clients got.
type Set struct {
	Invariants []Invariant
	Checks     []Check
	Numbers    []Check // each returns how much is wrong as one number, and is no invariant
}

// Check is one invariant, or a part of one, as a query that returns the ids of its
// violations.
type Check struct {
	Name      string // unique: for tests and reports
	Invariant string // S1, I-ONCE …: several checks may belong to one
	Means     string // what an id in the result identifies
	From      string // the first collection of an aggregation in MongoDB
	Pieces    bool   // it looks at each document of From by itself, so it may be run for ranges of _id
	Query     string // returns one text column, or _id
}

// Parse parses a file of queries, each of which ends with a semicolon at the end of a line.
// Comments before a query describe it, with -- in SQL and // in a script of mongosh:
//
//	-- invariant: S1 stock-balance: the stock is what was put there minus what was bought
//	-- name: S1 lines
//	-- finds: product whose stock is not what was put there minus what was bought
//
// A check belongs to the invariant whose code (in capitals) begins its name; without a
// code it is an invariant of its own. "-- number: oversold" in place of the name makes
// the query one of Set.Numbers. "-- pieces: by _id" sets Pieces.
func Parse(text string) (s Set) {
	var check Check
	number := false
	for line := range strings.Lines(text + "\n") {
		line = strings.TrimRight(line, " \t\n")
		comment, isComment := strings.CutPrefix(line, "--")
		if !isComment {
			comment, isComment = strings.CutPrefix(line, "//")
		}
		what, value, _ := strings.Cut(comment, ":")
		value = strings.TrimSpace(value)
		switch what = strings.TrimSpace(what); {
		case !isComment:
			if check.Query += line + "\n"; !strings.HasSuffix(line, ";") {
				continue
			}
			s.add(check, number)
			check, number = Check{}, false
		case what == "invariant":
			head, means, _ := strings.Cut(value, ":")
			code, name, _ := strings.Cut(head, " ")
			s.Invariants = append(s.Invariants, Invariant{Code: code, Name: name, Means: strings.TrimSpace(means)})
		case what == "name", what == "number":
			check.Name, number = value, what == "number"
		case what == "finds":
			check.Means = value
		case what == "pieces":
			check.Pieces = value == "by _id"
		}
	}
	if strings.TrimSpace(check.Query) != "" { // the last query needs no semicolon
		s.add(check, number)
	}
	return s
}

func (s *Set) add(check Check, number bool) {
	check.Query = strings.TrimSuffix(strings.TrimSpace(check.Query), ";")
	if check.Query == "" {
		return
	}
	if check.Name == "" {
		check.Name = fmt.Sprintf("query %d", len(s.Checks)+1)
	}
	check.Invariant = check.Name
	if code, _, _ := strings.Cut(check.Name, " "); code == strings.ToUpper(code) {
		check.Invariant = code
	}
	if number {
		s.Numbers = append(s.Numbers, check)
		return
	}
	s.Checks = append(s.Checks, check)
}

// Finding is the result of the checks of one invariant.
type Finding struct {
	Count int64    // of different ids
	IDs   []string // the first idsKept, in order
}

// Findings are keyed by invariant. An invariant that holds has a Count of 0.
type Findings map[string]Finding

// Counts returns the findings as numbers.
func (f Findings) Counts() map[string]int64 {
	counts := make(map[string]int64, len(f))
	for invariant, finding := range f {
		counts[invariant] = finding.Count
	}
	return counts
}

// Add adds ids that were not found by a check.
func (f Findings) Add(invariant string, ids ...string) {
	finding := f[invariant]
	finding.Count += int64(len(ids))
	finding.IDs = append(finding.IDs, ids[:min(len(ids), max(0, idsKept-len(finding.IDs)))]...)
	f[invariant] = finding
}

// Merge adds the findings of another audit.
func (f Findings) Merge(others Findings) {
	for invariant, other := range others {
		f.Add(invariant, other.IDs...)
		finding := f[invariant]
		finding.Count += other.Count - int64(len(other.IDs))
		f[invariant] = finding
	}
}

// idsKept bounds how many ids of a broken invariant are reported.
const idsKept = 20

// Run calls query for each check, and combines the checks of one invariant. An id that two
// checks of an invariant return counts once.
func Run(ctx context.Context, checks []Check, query func(context.Context, Check) ([]string, error)) (Findings, error) {
	broken := map[string][]string{}
	for _, check := range checks {
		ids, err := query(ctx, check)
		if err != nil {
			return nil, fmt.Errorf("audit %s: %w", check.Name, err)
		}
		broken[check.Invariant] = append(broken[check.Invariant], ids...)
	}
	findings := make(Findings, len(broken))
	for invariant, ids := range broken {
		slices.Sort(ids)
		ids = slices.Compact(ids)
		findings[invariant] = Finding{Count: int64(len(ids)), IDs: ids[:min(len(ids), idsKept)]}
	}
	return findings, nil
}

// Rows is implemented by pgx.Rows.
type Rows interface {
	Next() bool
	Scan(into ...any) error
	Err() error
	Close()
}

// Querier is a *pgx.Conn, a pgx.Tx or a *pgxpool.Pool. (This package imports no driver.)
type Querier[R Rows] interface {
	Query(ctx context.Context, sql string, args ...any) (R, error)
}

// SQL returns a function for Run that queries a PostgreSQL database.
func SQL[R Rows](db Querier[R]) func(context.Context, Check) ([]string, error) {
	return func(ctx context.Context, check Check) (ids []string, err error) {
		rows, err := db.Query(ctx, check.Query)
		if err != nil {
			return nil, err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
		return ids, rows.Err()
	}
}

// Audit returns the violations of each invariant of a set in a PostgreSQL database, and
// the set's numbers. All are 0 if nothing is wrong.
func Audit[R Rows](ctx context.Context, db Querier[R], s Set) (map[string]int64, error) {
	findings, err := Run(ctx, s.Checks, SQL(db))
	if err != nil {
		return nil, err
	}
	counts := findings.Counts()
	for _, number := range s.Numbers {
		if counts[number.Name], err = Number(ctx, db, number.Query); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// Number runs a query that returns one number.
func Number[R Rows](ctx context.Context, db Querier[R], sql string) (n int64, err error) {
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	defer rows.Close()
	if !rows.Next() {
		return 0, fmt.Errorf("audit: no number from %s: %w", sql, rows.Err())
	}
	if err := rows.Scan(&n); err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	rows.Close()
	if err := rows.Err(); err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	return n, nil
}
