package loadtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Check is one invariant, or a part of one, as SQL that returns the id of
// whatever breaks it: zero rows mean that it holds. Each is one statement, so
// that it sees one snapshot and may run while there is traffic.
type Check struct {
	Name      string // unique: for tests and reports
	Invariant string // S1, I-ONCE …: several checks may be parts of one
	Means     string // what a row of the result is
	SQL       string // returns one text column
}

// Finding is what the checks of one invariant returned.
type Finding struct {
	Count int64    // of different ids
	IDs   []string // the first of them, in order
}

// Findings are keyed by invariant. One that holds is there, with a Count of 0.
type Findings map[string]Finding

// Counts are the findings as numbers.
func (f Findings) Counts() map[string]int64 {
	counts := make(map[string]int64, len(f))
	for invariant, finding := range f {
		counts[invariant] = finding.Count
	}
	return counts
}

// Add reports further ids, found elsewhere than in the database.
func (f Findings) Add(invariant string, ids ...string) {
	finding := f[invariant]
	finding.Count += int64(len(ids))
	finding.IDs = append(finding.IDs, ids[:min(len(ids), max(0, idsKept-len(finding.IDs)))]...)
	f[invariant] = finding
}

// merge adds what another look found.
func (f Findings) merge(invariant string, other Finding) {
	f.Add(invariant, other.IDs...)
	finding := f[invariant]
	finding.Count += other.Count - int64(len(other.IDs))
	f[invariant] = finding
}

// keysKept is how long a key names one intent, at the least. After that its answer
// may be purged, and the key used again. The services keep it for 24 hours from the
// beginning of its transaction; the effect is dated later, by at most a request's time.
const keysKept = `interval '23 hours'`

// idsKept bounds how many ids of a broken invariant are reported.
const idsKept = 20

// queryer is a *pgx.Conn, a pgx.Tx or a *pgxpool.Pool.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Audit runs the checks and puts together what belongs to one invariant.
func Audit(ctx context.Context, conn queryer, checks []Check) (Findings, error) {
	broken := map[string][]string{}
	for _, check := range checks {
		rows, err := conn.Query(ctx, check.SQL)
		if err != nil {
			return nil, fmt.Errorf("audit %s: %w", check.Name, err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return nil, fmt.Errorf("audit %s: %w", check.Name, err)
		}
		broken[check.Invariant] = append(broken[check.Invariant], ids...)
	}
	return newFindings(broken), nil
}

// newFindings are the ids that break an invariant, none of them twice.
func newFindings(broken map[string][]string) Findings {
	findings := make(Findings, len(broken))
	for invariant, ids := range broken {
		slices.Sort(ids)
		ids = slices.Compact(ids) // found by two checks, broken once
		findings[invariant] = Finding{Count: int64(len(ids)), IDs: ids[:min(len(ids), idsKept)]}
	}
	return findings
}

// AuditInventory counts what breaks the invariants that can be seen in the
// tables alone, without knowing what clients were told. Every number is 0 in a
// shop that is right.
func AuditInventory(ctx context.Context, conn queryer) (map[string]int64, error) {
	findings, err := Audit(ctx, conn, InventoryChecks)
	if err != nil {
		return nil, err
	}
	counts := findings.Counts()
	counts["oversold"], err = units(ctx, conn, oversoldSQL(putThere))
	return counts, err
}

// units runs a query that returns one number.
func units(ctx context.Context, conn queryer, sql string) (int64, error) {
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	n, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
	if err != nil {
		return 0, fmt.Errorf("audit: %w", err)
	}
	return n, nil
}
