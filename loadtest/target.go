package loadtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"shop/locking/invariant"

	"github.com/jackc/pgx/v5"
)

// Target is a service that is not ours: given addresses to load, and given SQL that says
// what must not be. Nothing is started, stopped or broken; break it yourself while this
// runs.
type Target struct {
	Name      string
	Bases     []string // one for each replica, or one of a load balancer
	Header    http.Header
	KeyHeader string
	Classify  func(int, http.Header, []byte) (Outcome, string)
	Request   *Template
	Load      Load
	Checks    []invariant.Check // each must find nothing
	Database  string            // where they run
	Say       func(format string, args ...any)
	Tick      func(line string)
}

// TargetFlow is the name of the flow of such a service.
const TargetFlow = "target"

// targetFlow is next to nothing: what a service does is known to its owner.
var targetFlow = &Flow{
	Name: TargetFlow, Number: "oversold", Words: Words{Done: "ok"},
	Summary: func(r Result) string {
		return fmt.Sprintf("%d ok, %d rejected, %d undecided", r.OK, r.Rejected, r.Unknown)
	},
}

// Run fires the load, sends undecided keys again until they are decided, and
// then audits. The service goes on running, so a query sees what is committed
// then; all that was asked has been answered before.
func (t *Target) Run(ctx context.Context) (Report, error) {
	t.Load.Replicas = len(t.Bases)
	schedule, err := t.Request.schedule(t.Load)
	if err != nil {
		return Report{}, err
	}
	conn, err := pgx.Connect(ctx, t.Database)
	if err != nil {
		return Report{}, fmt.Errorf("audit: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := t.rehearse(ctx, conn); err != nil {
		return Report{}, err
	}
	r, err := NewRun(ctx, t.Bases, Headers{t.KeyHeader, []http.Header{t.Header}}, t.Load.Duration+patience, t.Classify)
	if err != nil {
		return Report{}, err
	}
	defer r.Close()
	t.Say("%s: %d requests to %d addresses", t.Name, len(schedule), len(t.Bases))
	watching, stop := context.WithCancel(ctx)
	go progress(watching, r.History, t.Tick)
	latencies := r.Send(ctx, schedule)
	decided := r.History.Now()
	stop()
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	records := r.History.Records()
	findings, err := t.audit(ctx, conn, records)
	if err != nil {
		return Report{}, err
	}
	scenario := targetFlow.Safe(t.Name, NoFault)
	result := NewResult(scenario, len(t.Bases))
	result.count(records, decided)
	result.P50, result.P99 = milliseconds(latencies.Latencies.P50), milliseconds(latencies.Latencies.P99)
	result.Evidence = map[string]int64{"overlaps": Overlaps(records, len(t.Bases))}
	maps.Copy(result.Evidence, onTheWire(records))
	result.Findings, result.Violations = findings, findings.Counts()
	result.Records, result.Epoch = records, r.History.Epoch
	if result.Evidence["overlaps"] == 0 {
		result.Inconclusive = []string{"no two requests overlapped"}
	}
	if result.OK == 0 {
		result.Inconclusive = append(result.Inconclusive, "no request succeeded")
	}
	result.Verdict, result.AsExpected = Judge(scenario, result.Violations, result.Inconclusive)
	t.Say("    %s", result.Sentence())
	return Report{Seed: t.Load.Seed, AsExpected: result.AsExpected, Scenarios: []Result{result}, Planned: 1, Load: t.Load, When: time.Now()}, nil
}

// rehearse finds a query that cannot run before the service is loaded for it.
func (t *Target) rehearse(ctx context.Context, conn *pgx.Conn) error {
	if len(t.Checks) == 0 {
		return errors.New("audit: there is no query in the file: nothing would be checked")
	}
	if _, err := conn.Exec(ctx, answersTable); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	for _, check := range t.Checks {
		if _, err := conn.Prepare(ctx, "", check.Query); err != nil {
			return fmt.Errorf("audit %s: %w", check.Name, err)
		}
	}
	return nil
}

func (t *Target) audit(ctx context.Context, conn *pgx.Conn, records []Record) (invariant.Findings, error) {
	if err := loadAnswers(ctx, conn, records); err != nil {
		return nil, err
	}
	findings, err := invariant.Run(ctx, t.Checks, invariant.SQL(conn))
	if err != nil {
		return nil, err
	}
	findings.Add("I-ONCE", diverged(records)...)
	findings.Add("I-LIVE", undecided(records)...)
	return findings, nil
}

// answersTable is what clients were told, for the queries of the audit to join.
const answersTable = `CREATE TEMPORARY TABLE proof_answers (key text PRIMARY KEY, outcome text, status int, body text)`

func loadAnswers(ctx context.Context, conn *pgx.Conn, records []Record) error {
	_, err := conn.CopyFrom(ctx, pgx.Identifier{"proof_answers"}, []string{"key", "outcome", "status", "body"},
		pgx.CopyFromSlice(len(records), func(i int) ([]any, error) {
			r := records[i]
			return []any{r.Key, string(r.Outcome), r.deciding().Status, string(r.Body)}, nil
		}))
	if err != nil {
		return fmt.Errorf("audit: copy answers: %w", err)
	}
	return nil
}
