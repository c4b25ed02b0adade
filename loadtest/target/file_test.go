// SPDX-License-Identifier: MIT

package target

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// small is a minimal file, to which tests append more.
const small = `services: [http://127.0.0.1:1]
supply: {coffee: 10}
requests:
  - {name: buy, path: /orders, takes: 1..3, body: '{"sku": "{{.Object}}", "quantity": {{.Units}}}'}
`

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// parsed parses a file that must be valid.
func parsed(t *testing.T, text string) *File {
	t.Helper()
	f, err := parse([]byte(text), Override{}, env("KEY", "s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestRead_WhatIsLeftOutHasADefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(path, []byte(small), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Read(path, Override{}, env())
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != "shop" || f.Rate != 100 || f.Duration != 5*time.Second || f.Seed != 1 || f.KeyHeader != "Idempotency-Key" || len(f.Clients) != 1 {
		t.Errorf("%+v", f)
	}
	if r := f.Requests[0]; r.Method != "POST" || r.Weight != 1 || r.Reads || len(r.Objects) != 1 || r.Objects[0] != "coffee" || r.Takes != (Amount{1, 3}) {
		t.Errorf("%+v", r)
	}
}

// As "prove --target shop.yaml" has it.
func TestRead_ACommandIsBesideTheFileWhereverThatIs(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("ci", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{".", "ci"} {
		path, script := filepath.Join(folder, "shop.yaml"), []byte("#!/bin/sh\necho lost; echo ' '; cat beside.txt; exit 1\n")
		text := []byte(small + "audits:\n  - {name: a, command: [./check]}\n")
		if err := errors.Join(os.WriteFile(path, text, 0o600), os.WriteFile(filepath.Join(folder, "check"), script, 0o700),
			os.WriteFile(filepath.Join(folder, "beside.txt"), []byte("beside\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		f, err := Read(path, Override{}, env())
		if err == nil {
			err = f.load()
		}
		if err != nil {
			t.Fatalf("in %s: %v", folder, err)
		}
		if lines, err := f.command(t.Context(), f.Audits[0], nil); err != nil || !slices.Equal(lines, []string{"lost", "beside"}) {
			t.Errorf("in %s: %q, %v", folder, lines, err)
		}
	}
}

func TestRead_TheCommandLineNamesTheReplicasAndMoreAudits(t *testing.T) {
	folder := t.TempDir()
	path, queries := filepath.Join(folder, "shop.yaml"), filepath.Join(t.TempDir(), "audit.sql")
	text := strings.Replace(small, "http://127.0.0.1:1", `"${UNSET}"`, 1) + "database: postgres://db\n"
	err := errors.Join(os.WriteFile(path, []byte(text), 0o600),
		os.WriteFile(queries, []byte("-- name: lost\nSELECT 1\nFROM orders;\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	f, err := Read(path, Override{Services: []string{"http://a:1", "http://b:1"}, AuditSQL: queries}, env())
	if err == nil {
		err = f.load()
	}
	if err != nil || len(f.Services) != 2 || f.Services[1] != "http://b:1" {
		t.Fatalf("%v: %+v", err, f)
	}
	if last := f.Audits[len(f.Audits)-1]; len(last.checks) != 1 || last.checks[0].Name != "lost" {
		t.Errorf("%+v", last)
	}
	for name, over := range map[string]Override{
		"no address":      {AuditSQL: queries},
		"a wrong address": {Services: []string{"a:1"}},
	} {
		if _, err := Read(path, over, env()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestParse_OneAddressTwiceIsOneReplica(t *testing.T) {
	f := parsed(t, strings.Replace(small, "http://127.0.0.1:1", "http://a:1, http://b:1, http://a:1/", 1))
	if len(f.Services) != 2 {
		t.Errorf("%q", f.Services)
	}
}

func TestParse_ErrorsNameTheLine(t *testing.T) {
	for _, c := range []struct {
		name, text string
		says       []string
	}{
		{"an unknown field", small + "treshold: 1\n", []string{"line 5", "field treshold not found"}},
		{"an unknown field of a request", small + "  - {name: a, path: /, objets: [b]}\n", []string{"line 5", "field objets not found"}},
		{"no YAML", "services: [\n", []string{"line "}},
		{"nothing", "# to be written\n", []string{"the file is empty"}},
		{"two clients of one name", small + "clients: [{name: ann}, {name: bob}, {name: ann}]\n", []string{"line 5", "ann is a client above"}},
		{"a supply in SQL, which names no objects", strings.Replace(small, "{coffee: 10}", "SELECT 'coffee', 10\ndatabase: postgres://h/x", 1), []string{"line 5", "list objects here: those of a supply in SQL"}},
		{"a list where a number must be", small + "rate: [1]\n", []string{"line 5: cannot unmarshal !!seq into int"}},
		{"no service", "requests:\n  - {name: a, path: /}\n", []string{"line 1", "services"}},
		{"no request", "services: [http://127.0.0.1:1]\n", []string{"line 1", "requests"}},
		{"not a URL", strings.Replace(small, "http://127.0.0.1:1", "me:hunter2@host", 1), []string{"line 1", "not the URL"}},
		{"nothing is checked", "services: [http://127.0.0.1:1]\nrequests:\n  - {name: a, path: /}\n", []string{"neither a supply nor audits"}},
		{"a rate of 0", small + "rate: 0\n", []string{"line 5", "rate"}},
		{"a duration without a unit", small + "duration: 5\n", []string{"line 5: cannot unmarshal !!int `5` into time.Duration"}},
		{"a variable that is not set", small + "clients:\n  - headers: {Authorization: '${NOT_SET}'}\n", []string{"line 6", "${NOT_SET} is not set"}},
		{"two requests of one name", small + "  - {name: buy, path: /}\n", []string{"line 5", "name of its own"}},
		{"a path without /", small + "  - {name: a, path: orders}\n", []string{"line 5", "begin with /"}},
		{"a template that is not closed", small + "  - {name: a, path: '/{{.Object'}\n", []string{"line 5", "path"}},
		{"a field that no template has", small + "  - {name: a, path: '/{{.Sku}}'}\n", []string{"line 5", "Sku"}},
		{"a body that is not JSON", small + "  - {name: a, path: /, body: 'sku={{.Object}}'}\n", []string{"line 5", "not JSON"}},
		{"after nothing", small + "  - {name: a, path: /, after: by}\n", []string{"line 5", `no request "by"`}},
		{"all after others", "services: [http://h]\nsupply: {a: 1}\nrequests:\n  - {name: a, path: /, after: a}\n", []string{"none can be the first"}},
		{"gives without a taker", small + "  - {name: a, path: /, gives: true}\n", []string{"line 5", "gives"}},
		{"another client of one", small + "  - {name: a, path: /, after: buy, as: other}\n", []string{"line 5", "second one"}},
		{"a share without after", small + "  - {name: a, path: /, share: 5%}\n", []string{"line 5", "share"}},
		{"a share without %", small + "  - {name: a, path: /, after: buy, share: 0.5}\n", []string{"line 5", "5%"}},
		{"takes that is no amount", small + "  - {name: a, path: /, takes: 3..1}\n", []string{"line 5", "1..3"}},
		{"takes of nothing", "services: [http://h]\nrequests:\n  - {name: a, path: /, takes: 1}\n", []string{"line 3", "there is none"}},
		{"shows of what is no read", small + "  - {name: a, path: /, shows: stock}\n", []string{"line 5", "shows: needs a read"}},
		{"too many objects", small + "  - {name: a, path: /, objects: ['x-{1..99999}']}\n", []string{"line 5", "at most"}},
		{"one object where two must be", small + "  - {name: a, path: '/{{.Other}}'}\n", []string{"line 5", "needs two"}},
		{"a supply of words", strings.Replace(small, "coffee: 10", "coffee: many", 1), []string{"line 2", "`many`"}},
		{"a supply as a list", strings.Replace(small, "{coffee: 10}", "[coffee]", 1), []string{"line 2", "!!seq into map"}},
		{"an object in two ranges", strings.Replace(small, "coffee: 10", "'a-{1..3}': 1, a-2: 5", 1), []string{"line 2", "a-2 is listed twice"}},
		{"a supply in SQL without a database", strings.Replace(small, "{coffee: 10}", "SELECT 1", 1), []string{"line 2", "database"}},
		{"an answer that is no status", small + "answers: {rejected: [sold-out]}\n", []string{"line 5", "409 sold-out"}},
		{"an outcome that there is not", small + "answers:\n  refused: [409]\n", []string{"line 6", `no outcome "refused"`}},
		{"an answer with two meanings", small + "answers:\n  ok: [409]\n  rejected: [409]\n", []string{"line 7", "409 is ok above"}},
		{"an audit of nothing", small + "audits:\n  - {name: a}\n", []string{"line 6", "one of sql, file and command"}},
		{"an audit without a name", small + "audits:\n  - {command: [true]}\n", []string{"line 6", "name of its own"}},
		{"an audit without a database", small + "audits:\n  - {name: a, sql: SELECT 1}\n", []string{"line 6", "needs a database"}},
		{"a limit that is no number", small + "limits: {most_errors: NaN%}\n", []string{"line 5", "5%"}},
		{"a limit without %", small + "limits: {most_errors: 3}\n", []string{"line 5", "5%"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := parse([]byte(c.text), Override{}, env())
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v; want %q in it", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a password is shown: %v", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
		})
	}
}

func TestParse_VariablesAreFilledInWhereSecretsAndAddressesStand(t *testing.T) {
	f := parsed(t, `services: ["${URL:-http://127.0.0.1:8080}"]
database: postgres://me:${KEY}@db/shop
duration: 90s
clients:
  - {name: alice, headers: {Authorization: "Bearer ${KEY}"}}
requests:
  - {name: buy, path: /, body: '{"price": "${KEY}"}'}
audits:
  - {name: ledger, command: [check, "--key=${KEY}"]}
`)
	for got, want := range map[string]string{
		f.Services[0]: "http://127.0.0.1:8080", f.Database: "postgres://me:s3cret@db/shop",
		f.Clients[0].Headers["Authorization"]: "Bearer s3cret", f.Audits[0].Command[1]: "--key=s3cret",
		f.Requests[0].Body: `{"price": "${KEY}"}`, // a body is not expanded
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	if f.Duration != 90*time.Second {
		t.Errorf("duration %v", f.Duration)
	}
}

// docs/ci.md quotes the file.
func TestRead_TheAuditsOfTheManualAreAccepted(t *testing.T) {
	audits, err := os.ReadFile("testdata/audits.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := small + "database: postgres://127.0.0.1/shop\n" + string(audits)
	f, err := parse([]byte(text), Override{}, env("LEDGER_URL", "http://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Audits) != 2 || f.Audits[0].File != "audit.sql" || len(f.Audits[1].Command) != 2 || f.Audits[1].Command[1] != "--url=http://127.0.0.1:1" || f.Audits[1].Means == "" {
		t.Errorf("%+v", f.Audits)
	}
}
