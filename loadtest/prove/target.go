package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"shop/loadtest"
)

// targetFlags turn prove on a service that is not ours. It gets the same kind of
// load, undecided keys are sent again until they are decided, and the SQL of
// --audit-sql is the audit. For a shop that runs already:
//
//	prove --target http://127.0.0.1:8080 --audit-sql audit.sql \
//	  --header "Authorization: Bearer $SHOP_KEY_ALICE" --refusal 409 \
//	  --path /v1/orders --body '{"lines":[{"sku":"{{pick "coffee" "tea"}}","quantity":{{int 1 3}}}]}'
type targetFlags struct {
	Target    []string `sep:"none" placeholder:"URL" help:"Load this service instead of our own replicas; repeat it for each replica."`
	AuditSQL  string   `name:"audit-sql" type:"existingfile" placeholder:"FILE" help:"Queries for --postgres-url, each ending with a semicolon at the end of a line, each of which must return no row. A comment '-- name: S1' before one names it. They can join proof_answers (key, outcome, status, body): what clients were told."`
	Method    string   `default:"POST" help:"Method of the requests."`
	Path      string   `default:"/" placeholder:"TEMPLATE" help:"Path and query. Go template: {{.N}} {{.Key}} {{pick \"a\" \"b\"}} {{int 1 3}}."`
	Body      string   `placeholder:"TEMPLATE" help:"Body, likewise."`
	Header    []string `sep:"none" placeholder:"NAME: VALUE" help:"Sent with each request; repeatable."`
	KeyHeader string   `default:"Idempotency-Key" help:"Header that carries the idempotency key."`
	Refusal   []int    `placeholder:"STATUS" help:"A status that means: this did not happen, and never will under this key. 400, 404, 422 and the like are known; add 409 if it means sold out and never 'in progress'. Problem types (RFC 9457) of this project are understood without it."`
}

func (f *targetFlags) validate() error {
	switch {
	case len(f.Target) > 0 && f.AuditSQL == "":
		return errors.New("--target needs --audit-sql: what must not be found in the database afterwards")
	case len(f.Target) == 0 && f.AuditSQL != "":
		return errors.New("--audit-sql needs --target: our own scenarios bring their audit along")
	}
	_, err := f.header()
	return err
}

func (f *targetFlags) header() (http.Header, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	for _, line := range f.Header {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, errors.New("--header: want NAME: VALUE (what was given is not shown, since it may be a key)")
		}
		header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return header, nil
}

func (c *app) proveTarget(ctx context.Context, tell *progress) (loadtest.Report, error) {
	if c.PostgresURL == "" {
		return loadtest.Report{}, errors.New("--audit-sql needs a database: set --postgres-url or SHOP_POSTGRES_URL")
	}
	queries, err := os.ReadFile(c.Target.AuditSQL)
	if err != nil {
		return loadtest.Report{}, err
	}
	header, err := c.Target.header()
	if err != nil {
		return loadtest.Report{}, err
	}
	name := filepath.Base(c.Target.AuditSQL)
	target := loadtest.Target{
		Name:      strings.TrimSuffix(name, filepath.Ext(name)),
		Bases:     c.Target.Target,
		Header:    header,
		KeyHeader: c.Target.KeyHeader,
		Classify:  loadtest.ClassifyByStatus(c.Target.Refusal...),
		Request:   &loadtest.Template{Method: c.Target.Method, Path: c.Target.Path, Body: c.Target.Body},
		Load:      loadtest.Load{Rate: c.Rate, Duration: c.Duration, Seed: c.Seed},
		Checks:    loadtest.ParseChecks(string(queries)),
		Database:  c.PostgresURL,
		Say:       tell.say,
		Tick:      tell.tick,
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { // before the first request
		return loadtest.Report{}, err
	}
	return target.Run(ctx)
}
