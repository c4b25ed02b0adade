// SPDX-License-Identifier: MIT

package target

import (
	"bytes"
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
	if len(f.Audits) == 0 && f.Supply.Kind == 0 {
		return f.at(nil, "%v", errNothingChecked)
	}
	names := map[string]bool{}
	for i := range f.Audits {
		a := &f.Audits[i]
		kinds := 0
		for _, given := range []bool{a.SQL != "", a.File != "", len(a.Command) > 0} {
			if given {
				kinds++
			}
		}
		switch {
		case kinds != 1:
			return f.at(place("audits", i), "an audit must have exactly one of sql, file and command")
		case a.File == "" && (a.Name == "" || names[a.Name]):
			return f.at(place("audits", i, "name"), "each audit needs a name of its own, which the report shows if it finds something")
		case a.File != "" && a.Name != "":
			return f.at(place("audits", i, "name"), "an audit with file has no name: each query has its own, as in -- name: stock-balance")
		case len(a.Command) == 0 && f.Database == "":
			return f.at(place("audits", i), "an audit in SQL needs a database: postgres://…, or ${NAME}")
		}
		names[a.Name] = true
		if a.SQL != "" {
			a.checks = []invariant.Check{{Name: a.Name, Invariant: a.Name, Query: strings.TrimSuffix(strings.TrimSpace(a.SQL), ";")}}
		}
	}
	return nil
}

// load reads the files of queries, and checks that the commands exist.
func (f *File) load() error {
	for i := range f.Audits {
		a := &f.Audits[i]
		if a.File != "" {
			text, err := os.ReadFile(f.beside(a.File))
			if err != nil {
				return f.at(place("audits", i, "file"), "%v", err)
			}
			if a.checks = invariant.Parse(string(text)).Checks; len(a.checks) == 0 {
				return f.at(place("audits", i, "file"), "%s contains no query", a.File)
			}
		}
		if len(a.Command) > 0 {
			if strings.ContainsRune(a.Command[0], filepath.Separator) {
				a.Command[0] = f.beside(a.Command[0])
			}
			if _, err := exec.LookPath(a.Command[0]); err != nil {
				return f.at(place("audits", i, "command"), "%v", err)
			}
		}
	}
	return nil
}

// beside resolves a path relative to the folder of the YAML file.
func (f *File) beside(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	absolute, err := filepath.Abs(filepath.Join(f.dir, path))
	if err != nil {
		return filepath.Join(f.dir, path)
	}
	return absolute
}

// query turns the columns of each row, whatever they are, into one text: each row is a violation.
func query(check invariant.Check) invariant.Check {
	check.Query = "SELECT violation::text FROM (\n" + check.Query + "\n) violation"
	return check
}

// rehearse prepares all queries, so that one that cannot run is found before the load.
func (f *File) rehearse(ctx context.Context, conn *pgx.Conn) error {
	if err := fillAnswers(ctx, conn, nil, nil); err != nil {
		return err
	}
	for i, a := range f.Audits {
		for _, check := range a.checks {
			if _, err := conn.Prepare(ctx, "", query(check).Query); err != nil {
				return f.at(place("audits", i), "audit %s: %v", check.Name, err)
			}
		}
	}
	return nil
}

// audit runs all audits. It returns the findings, and the reasons why audits show nothing.
func (f *File) audit(ctx context.Context, conn *pgx.Conn, records []traffic.Record) (findings invariant.Findings, blind []string, err error) {
	if conn != nil {
		if err := fillAnswers(ctx, conn, records, f.Clients); err != nil {
			return nil, nil, err
		}
	}
	findings = invariant.Findings{}
	for _, a := range f.Audits {
		for _, check := range a.checks {
			found, err := invariant.Run(ctx, []invariant.Check{query(check)}, invariant.SQL(conn))
			if err != nil {
				return nil, nil, err
			}
			findings.Merge(found)
			empty, err := emptyTables(ctx, conn, check.Query)
			if err != nil {
				return nil, nil, err
			}
			if !a.Empty && len(empty) > 0 && found[check.Invariant].Count == 0 {
				blind = append(blind, fmt.Sprintf("audit %s found nothing because there was nothing to read: %s is empty: is this the database of the service? (If the table must be empty, set may_be_empty: true)",
					check.Name, strings.Join(empty, ", ")))
			}
		}
		if len(a.Command) > 0 {
			lines, err := f.command(ctx, a, records)
			if err != nil {
				return nil, nil, err
			}
			findings.Add(a.Name, lines...)
		}
	}
	return findings, blind, nil
}

// emptyTables lists the tables that a query reads, if all of them are empty.
func emptyTables(ctx context.Context, conn *pgx.Conn, sql string) (tables []string, err error) {
	var plans []byte
	if err := conn.QueryRow(ctx, "EXPLAIN (VERBOSE, FORMAT JSON) "+sql).Scan(&plans); err != nil {
		return nil, fmt.Errorf("audit: explain: %w", err)
	}
	var tree any
	if err := json.Unmarshal(plans, &tree); err != nil {
		return nil, fmt.Errorf("audit: explain: %w", err)
	}
	read := map[string]bool{}
	relations(tree, read)
	for table := range read {
		var filled bool
		if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+table+")").Scan(&filled); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		if filled {
			return nil, nil
		}
		tables = append(tables, table)
	}
	return tables, nil
}

// relations finds the tables in a query plan of PostgreSQL, except temporary ones: proof_answers is never
// empty.
func relations(node any, found map[string]bool) {
	switch node := node.(type) {
	case []any:
		for _, each := range node {
			relations(each, found)
		}
	case map[string]any:
		schema, _ := node["Schema"].(string)
		if name, is := node["Relation Name"].(string); is && !strings.HasPrefix(schema, "pg_temp") {
			found[pgx.Identifier{schema, name}.Sanitize()] = true
		}
		for _, each := range node {
			relations(each, found)
		}
	}
}

// answersColumns are the columns of proof_answers: the answers to the clients, which queries can join.
const answersColumns = "key text PRIMARY KEY, request text, client text, object text, units int, outcome text, status int, body text"

func fillAnswers(ctx context.Context, conn *pgx.Conn, records []traffic.Record, clients []Client) error {
	return site.FillTable(ctx, conn, "proof_answers", answersColumns, records, func(r traffic.Record) []any {
		a := answerOf(r, clients)
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

func answerOf(r traffic.Record, clients []Client) answer {
	s := of(r.Intent)
	return answer{r.Key, string(r.Action), clients[r.Client].Name, s.Object, s.Units, string(r.Outcome), r.Status(), string(r.Body)}
}

// command runs a command, and returns its findings: the lines that it prints, or how it failed.
func (f *File) command(ctx context.Context, a Audit, records []traffic.Record) (lines []string, err error) {
	folder, err := os.MkdirTemp("", "prove")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "answers.jsonl")
	var answers bytes.Buffer
	encoder := json.NewEncoder(&answers)
	for _, r := range records {
		_ = encoder.Encode(answerOf(r, f.Clients)) // cannot fail: plain values into memory
	}
	if err := os.WriteFile(path, answers.Bytes(), 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(ctx, a.Command[0], a.Command[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = f.dir, append(os.Environ(), "PROVE_ANSWERS="+path), &out, &log
	err = cmd.Run()
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("audit %s: the command did not exit within %v", a.Name, commandTime)
	case err != nil && !errors.As(err, &exit):
		return nil, fmt.Errorf("audit %s: %w", a.Name, err)
	case err != nil && len(lines) == 0:
		lines = []string{fmt.Sprintf("%v: %s", err, lastLine(log.String()))}
	}
	return lines, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}
