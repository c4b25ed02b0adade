// SPDX-License-Identifier: MIT

package target

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/judge"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Run loads the service and audits the result. It returns an error if the run was not possible. A service
// that fails is not an error. say prints a line that stays, tick one that the next line replaces.
func (f *File) Run(ctx context.Context, say func(format string, args ...any), tick func(line string)) (r loadtest.Report, err error) {
	conn, err := f.connect(ctx)
	if err != nil {
		return r, err
	}
	if conn != nil {
		defer conn.Close(context.WithoutCancel(ctx))
	}
	v := &review{file: f}
	if v.supply, err = f.supply(ctx, conn); err != nil {
		return r, err
	}
	load := traffic.Load{Rate: f.Rate, Duration: f.Duration, Seed: f.Seed, Replicas: len(f.Services)}
	plan, err := f.draw(load, rand.Uint32())
	if err != nil {
		return r, err
	}
	if err := f.await(ctx); err != nil {
		return r, err
	}
	t := loadtest.Target{
		Name: f.Name, Bases: f.Services, Headers: f.headers(), Classify: f.classify, Stored: f.stored, Same: f.same, Plan: plan, FollowUp: f.followUp,
		Load: load, Grace: f.Decide, Undecided: float64(f.Limits.Undecided), Invariants: f.invariants(),
		Audit: func(ctx context.Context, records []traffic.Record) (loadtest.Audited, error) {
			return f.judge(ctx, conn, v, records)
		},
		Review: func(r loadtest.Result) (inconclusive, hints []string) {
			return v.inconclusive(r.Evidence["overlaps"]), v.hints()
		},
		Say: say, Tick: tick,
	}
	return t.Run(ctx)
}

// Folder is the folder of the run's files, relative to that of the report.
func (f *File) Folder() string {
	return (&loadtest.Flow{Name: loadtest.TargetFlow}).Safe(f.Name, loadtest.NoFault).Folder()
}

// connect loads the audits. It connects to the database, if there is one, and prepares them on it.
func (f *File) connect(ctx context.Context) (*pgx.Conn, error) {
	if err := f.load(); err != nil || f.Database == "" {
		return nil, err
	}
	config, err := pgx.ParseConfig(f.Database)
	if err != nil || strings.Contains(f.Database, "://") && !strings.HasPrefix(f.Database, "postgres") {
		return nil, f.at(place("database"), "not the URL of a PostgreSQL database (not shown, since it may hold a password): want postgres://user:password@host/name; for another database, use an audit with a command")
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	if err := f.rehearse(ctx, conn); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return nil, err
	}
	return conn, nil
}

// await waits until each service accepts connections.
func (f *File) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(f.Start, time.Second))
	defer cancel()
	for _, service := range f.Services {
		u, err := url.Parse(service)
		if err != nil {
			return err
		}
		address := net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), u.Scheme)) // net.Dial knows the port of the scheme
		for {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err == nil {
				_ = conn.Close()
				break
			}
			if !fault.Wait(ctx, 50*time.Millisecond) {
				return f.at(place("services"), "%s accepts no connection within %v: does the service run? %v", u.Host, f.Start, err)
			}
		}
	}
	return nil
}

// judge collects all findings.
func (f *File) judge(ctx context.Context, conn *pgx.Conn, v *review, records []traffic.Record) (loadtest.Audited, error) {
	findings, blind, err := f.audit(ctx, conn, records)
	if err != nil {
		return loadtest.Audited{}, err
	}
	v.records, v.blind = records, blind
	supplied, over := judgeSupply(v.supply, records)
	findings.Merge(supplied)
	findings.Merge(f.Limits.judge(records))
	findings.Add("I-DENY", notRefused(records)...)
	findings.Add("I-ONCE", f.notNamed(records)...)
	return loadtest.Audited{Findings: findings, Number: over}, nil
}

// notNamed lists the repetitions that were taken for the first answer by an id that does not name the effect: several keys of
// one request have it, as if it were that of the object. Then only equal bytes show that there was one effect.
func (f *File) notNamed(records []traffic.Record) (wrong []string) {
	key := func(r traffic.Record) string { return string(r.Action) + "\x00" + field(r.Body, f.Answers.ID) }
	keys := map[string]int{}
	for _, r := range records {
		if r.Outcome == traffic.OK && !r.Reads {
			keys[key(r)]++
		}
	}
	for _, r := range records {
		if r.Reworded != "" && keys[key(r)] > 1 {
			wrong = append(wrong, fmt.Sprintf("%s: %s; %d keys have this %s, so it does not name the effect: set answers.id", r.Key, r.Reworded, keys[key(r)], f.Answers.ID))
		}
	}
	return wrong
}

// notRefused lists the requests that did not end in one of their expected statuses.
func notRefused(records []traffic.Record) (wrong []string) {
	for _, r := range records {
		if s := of(r.Intent); len(s.Expect) > 0 && !slices.Contains(s.Expect, r.Status()) {
			wrong = append(wrong, fmt.Sprintf("%s: %s %s by %s ended in %d %s; want %v", r.Action, r.Method, r.Intent.Path, s.Client, r.Status(), r.Problem(), s.Expect))
		}
	}
	return wrong
}

// invariants returns the invariants of the file.
func (f *File) invariants() []invariant.Invariant {
	all := []invariant.Invariant{withinLimits}
	if f.Supply.given() {
		all = append(all, supplyKept, allSold, readsFit)
	}
	for _, a := range f.Audits {
		if a.Name != "" {
			all = append(all, invariant.Invariant{Code: a.Name, Name: a.Name, Means: a.Means})
		}
	}
	return all
}

// review finds why a run shows nothing, and which settings may be wrong.
type review struct {
	file    *File
	supply  map[string]int
	records []traffic.Record
	blind   []string // why audits show nothing
}

// inconclusive returns the reasons why the run could not have found anything.
func (v *review) inconclusive(overlaps int64) (reasons []string) {
	if !slices.ContainsFunc(v.records, func(r traffic.Record) bool { return r.Outcome == traffic.OK && !r.Reads }) {
		return []string{"no request succeeded: " + ended(v.records)} // the cause of all other reasons
	}
	if overlaps < judge.OverlapsLeast {
		reasons = append(reasons, fmt.Sprintf("%d pairs of requests with different keys overlapped for one object on different replicas, and at least %d must: raise rate or duration, or name fewer objects", overlaps, judge.OverlapsLeast))
	}
	for _, request := range v.file.Requests {
		if reason := v.vain(request); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	wanted, there, soldOut := 0, 0, false
	for _, b := range balances(v.supply, v.records) {
		wanted, there, soldOut = wanted+b.wanted, there+b.there, soldOut || b.wanted > b.there
	}
	if v.supply != nil && !soldOut {
		reasons = append(reasons, fmt.Sprintf("clients wanted %d units, and %d were there: nothing could sell out: raise rate or duration, or lower the supply", wanted, there))
	}
	return append(reasons, v.blind...)
}

// vain returns why a request of the file shows nothing; "" if it shows something.
func (v *review) vain(request Request) string {
	var own []traffic.Record
	ok, hidden := false, false
	for _, r := range v.records {
		if string(r.Action) == request.Name {
			own = append(own, r)
			_, shown := request.shown(r.Body)
			ok, hidden = ok || r.Outcome == traffic.OK, hidden || r.Outcome == traffic.OK && !shown
		}
	}
	switch {
	case len(own) == 0 && request.After != "":
		return fmt.Sprintf("request %q was never sent: no success of %q, or its answers lack a field that the templates use, or share is too low", request.Name, request.After)
	case len(own) == 0:
		return fmt.Sprintf("request %q was never sent: raise its weight, or duration", request.Name)
	case request.Shows != "" && hidden:
		return fmt.Sprintf("answers to %q have no number in %q: is shows right?", request.Name, request.Shows)
	case len(request.Expect) > 0 || ok:
		return ""
	}
	return fmt.Sprintf("no request %q succeeded: %s: if it must not succeed, set expect: [STATUS]", request.Name, ended(own))
}

// hints returns which settings may be wrong.
func (v *review) hints() (hints []string) {
	return slices.Concat(v.unlisted(), v.keyIgnored(), v.strangers(), v.silentServices())
}

// likely says what may be wrong if most keys end in a status.
var likely = map[int]string{
	401: "are the headers of the clients right, and are their secrets still valid?",
	403: "may these clients do this?",
	404: "are the path and the objects right?",
	405: "is the method right?",
	400: "are the body and idempotency_header right?",
	415: "is the Content-Type in the headers of the clients right?",
	422: "is the body right?",
}

// unlisted finds endings that the file may have to list, and those of at least half of the keys.
func (v *review) unlisted() (hints []string) {
	hint := func(format string, args ...any) { hints = append(hints, fmt.Sprintf(format, args...)) }
	for _, e := range endings(v.records) {
		said := e.rule()
		switch listed := v.file.rules[said]; {
		case e.kind == undecided && e.status == 0:
			hint("%d keys ended without an answer, such as %q: does the service run? Its log may say why", e.n, e.body)
		case e.kind == undecided && e.status >= 500 && listed == "":
			hint("%d keys ended in %s: the log of the service may say why; if this answer means that nothing was done, set answers: {open: [%s]}", e.n, said, said)
		case e.kind == undecided && (listed == traffic.Open || listed == traffic.Unknown):
			hint("%d keys ended in %s, which the file lists as %s, and no retry within %v decided them", e.n, said, listed, v.file.Decide)
		case e.kind == undecided:
			hint("%d keys ended in %s: is that a refusal? Set answers: {rejected: [%s]}", e.n, said, said)
		case e.kind == repeated:
			hint("%d keys succeeded, and their repetitions ended in %s: does that mean that it had happened? Set answers: {duplicate: [%s]}", e.n, said, said)
		case e.kind == decided && 2*e.n >= len(v.records) && likely[e.status] != "":
			hint("%d of %d keys ended in %d: %s The service says: %s", e.n, len(v.records), e.status, likely[e.status], cmp.Or(e.body, "nothing"))
		}
	}
	return hints
}

// keyIgnored detects a service that reads the key from another header.
func (v *review) keyIgnored() []string {
	ok := func(a traffic.Attempt) bool { return a.Outcome == traffic.OK }
	again := func(r traffic.Record) bool { return r.Outcome == traffic.OK && !r.Reads && count(r, ok) > 1 }
	twice := len(judge.Keys(v.records, again))
	if twice < 3 || slices.ContainsFunc(v.records, func(r traffic.Record) bool { return again(r) && !r.Diverged }) {
		return nil
	}
	return []string{fmt.Sprintf("each of %d keys that succeeded and were sent again got another answer: does the service read the key from the header %s? Set idempotency_header. Does %q name what was done? Set answers: {id: FIELD}", twice, v.file.KeyHeader, v.file.Answers.ID)}
}

// strangers lists the clients of which the service knows nothing, while it knows others.
func (v *review) strangers() (hints []string) {
	writes := func(r traffic.Record) bool { return of(r.Intent).writes() }
	ok := len(judge.Keys(v.records, func(r traffic.Record) bool { return writes(r) && r.Outcome == traffic.OK }))
	for i, c := range v.file.Clients {
		own := func(r traffic.Record) bool { return writes(r) && r.Client == i }
		n := len(judge.Keys(v.records, own))
		known := slices.ContainsFunc(v.records, func(r traffic.Record) bool { return own(r) && r.Status() != http.StatusUnauthorized })
		if n > 0 && !known && ok > 0 {
			hints = append(hints, fmt.Sprintf("all %d keys of %s ended in 401, while %d of other clients succeeded: are the headers of %s right?", n, c.Name, ok, c.Name))
		}
	}
	return hints
}

// silentServices lists the addresses that returned no success, if there are enough successes for that not
// to be chance.
func (v *review) silentServices() (hints []string) {
	ok, all := make([]int, len(v.file.Services)), 0
	for _, r := range v.records {
		for i := range ok {
			n := count(r, func(a traffic.Attempt) bool { return a.Outcome == traffic.OK && a.Replica == i })
			ok[i], all = ok[i]+n, all+n
		}
	}
	for i, service := range v.file.Services {
		if u, err := url.Parse(service); err == nil && ok[i] == 0 && all >= 10 {
			hints = append(hints, fmt.Sprintf("%s returned no success, the others returned %d: is it the same service?", u.Host, all))
		}
	}
	return hints
}

// ending is how some keys ended.
type ending struct {
	kind    kind
	status  int
	problem string
	body    string // of one of them
	n       int
}

type kind int

const (
	decided   kind = iota
	expected       // by the file
	undecided      // although its client did not give up
	repeated       // it succeeded, and its last repetition decided nothing
)

// rule is what the file would list: without a value if the status is all that is known.
func (e ending) rule() string {
	if e.problem == http.StatusText(e.status) {
		return rule(e.status, "")
	}
	return rule(e.status, e.problem)
}

// endings groups keys by how they ended, the largest group first.
func endings(records []traffic.Record) (groups []ending) {
	for _, r := range records {
		e := ending{status: r.Status(), problem: r.Last().Problem}
		switch last := r.Last(); {
		case !r.Outcome.Final() && !r.GivesUp:
			e.kind = undecided
		case r.Outcome == traffic.OK && !r.Reads && last.Outcome == traffic.Unknown && last.Status/100 == 4:
			e.kind, e.status = repeated, last.Status
		case len(of(r.Intent).Expect) > 0:
			e.kind = expected
		}
		i := slices.IndexFunc(groups, func(g ending) bool { return g.kind == e.kind && g.status == e.status && g.problem == e.problem })
		if i < 0 {
			e.body = strings.Join(strings.Fields(traffic.Brief(r.Body)), " ")
			for _, a := range r.Attempts { // the last one may have been cut short by the end of the run
				e.body = cmp.Or(e.body, a.Error)
			}
			i, groups = len(groups), append(groups, e)
		}
		groups[i].n++
	}
	slices.SortStableFunc(groups, func(a, b ending) int { return cmp.Compare(b.n, a.n) })
	return groups
}

// ended describes how some keys ended, the most frequent endings first.
func ended(records []traffic.Record) string {
	var texts []string
	for _, e := range endings(records) {
		text := fmt.Sprintf("%d ended in %s", e.n, rule(e.status, e.problem))
		if e.status == 0 {
			text = fmt.Sprintf("%d got no answer", e.n)
		}
		texts = append(texts, text)
	}
	return strings.Join(texts[:min(3, len(texts))], ", ")
}
