// SPDX-License-Identifier: MIT

package target

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"shop/loadtest/site"
	"shop/loadtest/traffic"
	"shop/locking/invariant"
)

// Audit is a condition that must hold after the load: a query that must return no row, a file of such
// queries, or a command that must print no line and exit with status 0.
type Audit struct {
	Name    string
	Means   string   // what must be true, for the report
	SQL     string   `yaml:"sql"`
	File    string   // with queries, each of which ends with a semicolon at the end of a line, after a comment "-- name: S1"
	Command []string // can read the answers of the clients, as JSON lines, from the file that PROVE_ANSWERS names
	Empty   bool     `yaml:"may_be_empty"` // its tables may be empty: it looks for rows that must not exist at all

	checks []invariant.Check
}

// commandTime bounds a command.
const commandTime = time.Minute

func (f *File) checkAudits() error {
	mistakes := []mistake{{len(f.Audits) == 0 && !f.Supply.given(), nil, "there is neither a supply nor audits: nothing would be checked"}}
	names := map[string]bool{}
	for i, a := range f.Audits {
		sql, file, command := a.SQL != "", a.File != "", len(a.Command) > 0
		exactlyOne := sql && !file && !command || file && !sql && !command || command && !sql && !file
		here, name := place("audits", i), place("audits", i, "name")
		mistakes = append(mistakes, []mistake{
			{!exactlyOne, here, "an audit must have exactly one of sql, file and command"},
			{!file && (a.Name == "" || names[a.Name]), name, "each audit needs a name of its own, which the report shows if it finds something"},
			{file && a.Name != "", name, "an audit with file has no name: each query has its own, as in -- name: stock-balance"},
			{!command && f.Database == "", here, "an audit in SQL needs a database: postgres://…, or ${NAME}"},
		}...)
		names[a.Name] = true
	}
	return f.first(mistakes)
}

// load reads the queries, and checks that the commands exist.
func (f *File) load() error {
	for i := range f.Audits {
		a := &f.Audits[i]
		switch {
		case a.SQL != "":
			a.checks = []invariant.Check{{Name: a.Name, Invariant: a.Name, Query: strings.TrimSuffix(strings.TrimSpace(a.SQL), ";")}}
		case a.File != "":
			text, err := os.ReadFile(f.beside(a.File))
			if err != nil {
				return f.at(place("audits", i, "file"), "%v", err)
			}
			if a.checks = invariant.Parse(string(text)).Checks; len(a.checks) == 0 {
				return f.at(place("audits", i, "file"), "%s contains no query", a.File)
			}
		default:
			if strings.ContainsRune(a.Command[0], filepath.Separator) {
				a.Command[0] = f.beside(a.Command[0])
			}
			if _, err := exec.LookPath(a.Command[0]); err != nil {
				return f.at(place("audits", i, "command"), "%v", err)
			}
		}
		for k := range a.checks { // the columns of each row, whatever they are, become one text: each row is a violation
			a.checks[k].Query = "SELECT violation::text FROM (\n" + a.checks[k].Query + "\n) violation"
		}
	}
	return nil
}

// beside resolves a path relative to the folder of the YAML file.
func (f *File) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(f.dir, path)
}

// rehearse prepares all queries, so that one that cannot run is found before the load.
func (f *File) rehearse(ctx context.Context, conn *pgx.Conn) error {
	if err := f.fillAnswers(ctx, conn, nil); err != nil {
		return err
	}
	for i, a := range f.Audits {
		for _, check := range a.checks {
			if _, err := conn.Prepare(ctx, "", check.Query); err != nil {
				return f.at(place("audits", i), "audit %s: %v", check.Name, err)
			}
		}
	}
	return nil
}

// audit runs all audits. It returns the findings, and the reasons why audits show nothing.
func (f *File) audit(ctx context.Context, conn *pgx.Conn, records []traffic.Record) (findings invariant.Findings, blind []string, err error) {
	if conn != nil {
		if err := f.fillAnswers(ctx, conn, records); err != nil {
			return nil, nil, err
		}
	}
	findings = invariant.Findings{}
	for _, a := range f.Audits {
		for _, check := range a.checks {
			found, err := invariant.Run(ctx, []invariant.Check{check}, invariant.SQL(conn))
			empty, explained := emptyTables(ctx, conn, check.Query)
			if err := cmp.Or(err, explained); err != nil {
				return nil, nil, err
			}
			findings.Merge(found)
			if !a.Empty && len(empty) > 0 && found[check.Invariant].Count == 0 {
				blind = append(blind, fmt.Sprintf("audit %s found nothing because there was nothing to read: %s is empty: is this the database of the service? (If the table must be empty, set may_be_empty: true)",
					check.Name, strings.Join(empty, ", ")))
			}
		}
		if len(a.Command) > 0 {
			lines, err := f.command(ctx, a, records)
			if err != nil {
				return nil, nil, fmt.Errorf("audit %s: %w", a.Name, err)
			}
			findings.Add(a.Name, lines...)
		}
	}
	return findings, blind, nil
}

// tablesOf lists the tables in a query plan, except temporary ones: proof_answers is never empty.
const tablesOf = `
SELECT DISTINCT format('%I.%I', node ->> 'Schema', node ->> 'Relation Name')
FROM jsonb_path_query($1::jsonb, 'strict $.** ? (exists (@."Relation Name"))') AS node
WHERE node ->> 'Schema' NOT LIKE 'pg\_temp%'`

// emptyTables lists the tables that a query reads, if all of them are empty.
func emptyTables(ctx context.Context, conn *pgx.Conn, sql string) (tables []string, err error) {
	var plan []byte
	if err := conn.QueryRow(ctx, "EXPLAIN (VERBOSE, FORMAT JSON) "+sql).Scan(&plan); err != nil {
		return nil, err
	}
	rows, _ := conn.Query(ctx, tablesOf, plan) // its error is that of CollectRows
	if tables, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, err
	}
	for _, table := range tables {
		var filled bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+table+")").Scan(&filled); err != nil || filled {
			return nil, err
		}
	}
	return tables, nil
}

// fillAnswers fills proof_answers with the answers to the clients, which queries can join.
func (f *File) fillAnswers(ctx context.Context, conn *pgx.Conn, records []traffic.Record) error {
	const columns = "key text PRIMARY KEY, request text, client text, object text, units int, outcome text, status int, body text"
	return site.FillTable(ctx, conn, "proof_answers", columns, records, func(r traffic.Record) []any {
		a := f.answer(r)
		return []any{a.Key, a.Request, a.Client, a.Object, a.Units, a.Outcome, a.Status, column(a.Body)}
	})
}

// column replaces the bytes that PostgreSQL does not accept in a text: an answer may contain any.
func column(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// answer is the answer to a client, for queries and commands.
type answer struct {
	Key     string `json:"key"`
	Request string `json:"request"`
	Client  string `json:"client"`
	Object  string `json:"object"`
	Units   int    `json:"units"`
	Outcome string `json:"outcome"`
	Status  int    `json:"status"`
	Body    string `json:"body"`
}

func (f *File) answer(r traffic.Record) answer {
	s := of(r.Intent)
	return answer{r.Key, string(r.Action), f.Clients[r.Client].Name, s.Object, s.Units, string(r.Outcome), r.Status(), string(r.Body)}
}

// command runs a command, and returns its findings: the lines that it prints, or how it failed.
func (f *File) command(ctx context.Context, a Audit, records []traffic.Record) (lines []string, err error) {
	answers, err := os.CreateTemp("", "answers-*.jsonl")
	if err != nil {
		return nil, err
	}
	defer os.Remove(answers.Name())
	encoder := json.NewEncoder(answers)
	for _, r := range records {
		err = errors.Join(err, encoder.Encode(f.answer(r)))
	}
	if err := errors.Join(err, answers.Close()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, a.Command[0], a.Command[1:]...)
	cmd.Dir, cmd.Env = f.dir, append(os.Environ(), "PROVE_ANSWERS="+answers.Name())
	out, err := cmd.Output()
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the command did not exit within %v", commandTime)
	case err != nil && !errors.As(err, &exit):
		return nil, err
	case err != nil && len(lines) == 0:
		log := strings.TrimSpace(string(exit.Stderr))
		lines = []string{fmt.Sprintf("%v: %s", err, log[strings.LastIndexByte(log, '\n')+1:])}
	}
	return lines, nil
}
