package loadtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/locking/invariant"
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
	r, err := NewRun(ctx, t.Bases, Headers{t.KeyHeader, []http.Header{t.Header}}, t.Load.Duration+grace, t.Classify)
	if err != nil {
		return Report{}, err
	}
	defer r.Close()
	t.Say("%s: %d requests to %d addresses", t.Name, len(schedule), len(t.Bases))
	watching, stop := context.WithCancel(ctx)
	go progress(watching, r.History, t.Tick)
	sent := r.Send(ctx, schedule)
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
	result.measure(records, decided)
	result.Evidence = onTheWire(records)
	result.Evidence["overlaps"] = Overlaps(records, len(t.Bases))
	result.Findings, result.Violations = findings, findings.Counts()
	result.Records, result.Epoch, result.Sent = records, r.History.Epoch, sent
	result.Inconclusive = lagging(result.Latency.Lag)
	if result.Evidence["overlaps"] == 0 {
		result.Inconclusive = append(result.Inconclusive, "no two requests overlapped")
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
	if err := t.fillAnswers(ctx, conn, nil); err != nil {
		return err
	}
	for _, check := range t.Checks {
		if _, err := conn.Prepare(ctx, "", check.Query); err != nil {
			return fmt.Errorf("audit %s: %w", check.Name, err)
		}
	}
	return nil
}

func (t *Target) audit(ctx context.Context, conn *pgx.Conn, records []Record) (invariant.Findings, error) {
	if err := t.fillAnswers(ctx, conn, records); err != nil {
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

// fillAnswers puts what clients were answered into a table, for the queries of the audit to join.
func (t *Target) fillAnswers(ctx context.Context, conn *pgx.Conn, records []Record) error {
	return FillTable(ctx, conn, "proof_answers", "key text PRIMARY KEY, outcome text, status int, body text", records, func(r Record) []any {
		return []any{r.Key, string(r.Outcome), r.deciding().Status, string(r.Body)}
	})
}

// Template makes the requests to a service that is not ours. Path and Body are
// text/template with
//
//	{{.N}}            the number of the request, from 0
//	{{.Key}}          its idempotency key
//	{{pick "a" "b"}}  one of them
//	{{int 1 3}}       a number from 1 to 3
//
// drawn from the seed, so that the same seed sends the same.
type Template struct {
	Method, Path, Body string
}

// schedule draws a request for each moment of the load; one in ten is sent twice
// at once, to two addresses if there are two.
func (t *Template) schedule(load Load) ([]ScheduledRequest, error) {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 0))
	functions := template.FuncMap{
		"pick": func(choices ...string) string { return choices[random.IntN(len(choices))] },
		"int":  func(low, high int) int { return low + random.IntN(max(1, high-low+1)) },
	}
	path, err := template.New("path").Funcs(functions).Option("missingkey=error").Parse(t.Path)
	if err != nil {
		return nil, err
	}
	body, err := template.New("body").Funcs(functions).Option("missingkey=error").Parse(t.Body)
	if err != nil {
		return nil, err
	}
	run := rand.Uint32() // the service is not new: keys of an earlier run are taken
	n := max(1, int(load.Duration.Seconds()*float64(load.Rate)))
	var plan Plan
	for i := range n {
		fields := struct {
			N   int
			Key string
		}{i, fmt.Sprintf("prove-%08x-%06d", run, i)}
		var p, b bytes.Buffer
		if err := path.Execute(&p, fields); err != nil {
			return nil, err
		}
		if err := body.Execute(&b, fields); err != nil {
			return nil, err
		}
		intent := &Intent{Key: fields.Key, Method: t.Method, Path: p.String(), Body: b.Bytes(), Contends: []string{"anything"}}
		plan.Add(random, load.Replicas, ScheduledRequest{load.At(i, n), random.IntN(load.Replicas), intent})
	}
	return plan.Schedule, nil
}

// ParseChecks reads a file of queries, each of which ends with a semicolon at the end of a
// line. A comment "-- name: S1" before one names it.
func ParseChecks(text string) []invariant.Check {
	checks := invariant.Parse(text).Checks
	for i := range checks {
		// Whatever columns it returns, a row is a violation, and its text is its id.
		checks[i].Query = "SELECT violation::text FROM (\n" + checks[i].Query + "\n) violation"
	}
	return checks
}
