// SPDX-License-Identifier: MIT

package target

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"shop/loadtest/traffic"
)

// File describes a service, what is sent to it, and what must be true afterwards. In YAML a field has its
// name in lower case, or the name in its tag.
type File struct {
	Name      string        // of the service, in reports; default: the name of the file
	Services  []string      // addresses: one for each replica, or that of a load balancer
	Start     time.Duration `yaml:"start_within"` // how long the services may take until they accept connections
	Rate      int           // new requests per second
	Duration  time.Duration // of the load
	Decide    time.Duration `yaml:"decide_within"` // how long undecided keys are retried after the load
	Seed      int64
	KeyHeader string `yaml:"idempotency_header"`
	Clients   []Client
	Requests  []Request
	Supply    Supply
	Answers   Answers
	Database  string // PostgreSQL, for audits and a supply in SQL
	Audits    []Audit
	Limits    Limits

	dir    string // the folder of the file, in which commands run
	root   yaml.Node
	rules  map[string]traffic.Outcome // what the listed answers mean
	stored []string                   // the values of the listed refusals
}

// Client sends requests with headers of its own.
type Client struct {
	Name    string
	Headers map[string]string
}

// Override is what a command line says instead of, or beside, a file.
type Override struct {
	Services []string // instead of those of the file, unless there are none
	AuditSQL string   // the path of a file of queries, beside the audits of the file; "": none
}

// Read reads a file. getenv returns the values of ${NAME}. Errors name the line.
func Read(path string, over Override, getenv func(string) string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(text, over, getenv)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.dir, err = filepath.Abs(filepath.Dir(path)); err != nil { // a command is looked up here, and runs there
		return nil, err
	}
	if f.Name == "" {
		f.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return f, nil
}

// oneLine makes an error of the decoder fit in a line.
var oneLine = strings.NewReplacer("yaml: unmarshal errors:\n  ", "", "yaml: ", "", "\n  ", "; ")

func parse(text []byte, over Override, getenv func(string) string) (*File, error) {
	f := &File{
		Start: 20 * time.Second, Rate: 100, Duration: 5 * time.Second, Decide: 20 * time.Second, Seed: 1, KeyHeader: "Idempotency-Key",
		Answers: Answers{ID: "id"}, Limits: Limits{Errors: 0.05, Busy: 0.5},
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	err := decoder.Decode(f)
	if err == nil {
		err = yaml.Unmarshal(text, &f.root)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, errors.New(oneLine.Replace(err.Error()))
	}
	if len(over.Services) > 0 {
		f.Services = over.Services
	}
	if err := f.expand(getenv); err != nil {
		return nil, err
	}
	if over.AuditSQL != "" {
		f.Audits = append(f.Audits, Audit{File: over.AuditSQL})
	}
	for _, check := range []func() error{f.checkLoad, f.checkRequests, f.checkAnswers, f.checkAudits} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// at returns an error with the line of a place in the file, such as ("requests", 2, "body"). For a place
// that does not exist it is the line of the closest enclosing one.
func (f *File) at(place []any, format string, args ...any) error {
	node := f.root.Content[0]
	for _, step := range place {
		var next *yaml.Node
		for i, each := range node.Content {
			isItem := node.Kind == yaml.SequenceNode && step == i
			isField := node.Kind == yaml.MappingNode && i%2 == 1 && step == node.Content[i-1].Value
			if isItem || isField {
				next = each
			}
		}
		if next == nil {
			break
		}
		node = next
	}
	return fmt.Errorf("line %d: %s", node.Line, fmt.Sprintf(format, args...))
}

func place(steps ...any) []any { return steps }

// mistake is a setting that cannot work, if found.
type mistake struct {
	found bool
	place []any
	text  string
}

// first returns the first mistake that was found.
func (f *File) first(mistakes []mistake) error {
	for _, m := range mistakes {
		if m.found {
			return f.at(m.place, "%s", m.text)
		}
	}
	return nil
}

func (f *File) checkLoad() error {
	mistakes := []mistake{
		{len(f.Services) == 0, nil, "services: no address is given"},
		{len(f.Requests) == 0, nil, "requests: none is given"},
		{f.Rate < 1, place("rate"), "rate must be at least 1"},
		{f.Duration <= 0, place("duration"), "duration must be above 0, such as 5s"},
		{f.KeyHeader == "", place("idempotency_header"), "idempotency_header must not be empty: without a key no request can be retried"},
		{f.Supply.SQL != "" && f.Database == "", place("supply"), "a supply in SQL needs a database"},
	}
	var services []string // without duplicate addresses, which are one replica
	for i, service := range f.Services {
		u, err := url.Parse(service)
		mistakes = append(mistakes, mistake{
			err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https", place("services", i),
			"not the URL of a service (not shown, since it may hold a password): want http://127.0.0.1:8080",
		})
		if service = strings.TrimSuffix(service, "/"); !slices.Contains(services, service) {
			services = append(services, service)
		}
	}
	f.Services = services
	if len(f.Clients) == 0 {
		f.Clients = []Client{{}}
	}
	names := map[string]bool{}
	for i := range f.Clients {
		c := &f.Clients[i]
		if c.Name == "" {
			c.Name = fmt.Sprintf("client %d", i+1)
		}
		mistakes = append(mistakes, mistake{names[c.Name], place("clients", i, "name"), "each client needs a name of its own: " + c.Name + " is a client above"})
		names[c.Name] = true
	}
	return f.first(mistakes)
}

// headers returns the headers of the clients.
func (f *File) headers() traffic.Headers {
	headers := traffic.Headers{Key: f.KeyHeader}
	for _, c := range f.Clients {
		header := http.Header{"Content-Type": {"application/json"}}
		for name, value := range c.Headers {
			header.Set(name, value)
		}
		headers.Clients = append(headers.Clients, header)
	}
	return headers
}

var variable = regexp.MustCompile(`\$\{(\w+)(:-([^}]*))?\}`)

// expand replaces ${NAME} and ${NAME:-default} with environment variables in the fields that hold secrets
// and addresses: the name, services, headers, the database and commands.
func (f *File) expand(getenv func(string) string) (err error) {
	fill := func(text *string, steps ...any) {
		*text = variable.ReplaceAllStringFunc(*text, func(match string) string {
			parts := variable.FindStringSubmatch(match)
			value := cmp.Or(getenv(parts[1]), parts[3])
			if value == "" && parts[2] == "" {
				err = cmp.Or(err, f.at(steps, "%s is not set in the environment", match))
			}
			return value
		})
	}
	fill(&f.Name, "name")
	for i := range f.Services {
		fill(&f.Services[i], "services", i)
	}
	fill(&f.Database, "database")
	for i, client := range f.Clients {
		for name, value := range client.Headers {
			fill(&value, "clients", i, "headers", name)
			client.Headers[name] = value
		}
	}
	for i, audit := range f.Audits {
		for k := range audit.Command {
			fill(&audit.Command[k], "audits", i, "command", k)
		}
	}
	return err
}

// Answers maps the answers of the service to outcomes. The outcomes of answers that are not listed are:
//
//	2xx                                      ok
//	400 401 403 404 405 410 413 415 422      rejected
//	429                                      open
//	any other, and no answer                 unknown
type Answers struct {
	Field  string              // a field of the JSON answer, such as error or error.code; default: the last part of an RFC 9457 type
	ID     string              // the field of a success that names its effect, such as id or order.id; default: id
	Listed map[string][]string `yaml:",inline"` // by outcome: a status, or a status and the value of the field, such as "409", "409 sold-out"
}

var outcomes = []traffic.Outcome{
	traffic.OK,        // it happened
	traffic.Duplicate, // it had happened: the effect is that of an earlier request with this key
	traffic.Rejected,  // it did not happen, and never will under this key; if listed with a value, every further refusal has the same value
	traffic.Open,      // this attempt did nothing: the key is retried
	traffic.Unknown,   // it may have happened: the key is retried
}

// rule names an answer by its status and, if it is not "", the value of a field.
func rule(status any, value string) string { return strings.TrimSpace(fmt.Sprint(status, " ", value)) }

func (f *File) checkAnswers() error {
	f.rules = map[string]traffic.Outcome{}
	for listed := range f.Answers.Listed {
		if !slices.Contains(outcomes, traffic.Outcome(listed)) {
			return f.at(place("answers", listed), "there is no outcome %q: want one of %v", listed, outcomes)
		}
	}
	for _, outcome := range outcomes {
		for i, entry := range f.Answers.Listed[string(outcome)] {
			here := place("answers", string(outcome), i)
			status, value, _ := strings.Cut(strings.TrimSpace(entry), " ")
			value = strings.TrimSpace(value)
			if number, err := strconv.Atoi(status); err != nil || number < 100 || number > 599 {
				return f.at(here, "%q is not a status, or a status and a value: want 409 or 409 sold-out", entry)
			}
			if before, twice := f.rules[rule(status, value)]; twice {
				return f.at(here, "%s is %s above", entry, before)
			}
			f.rules[rule(status, value)] = outcome
			if outcome == traffic.Rejected && value != "" {
				f.stored = append(f.stored, value)
			}
		}
	}
	return nil
}

// same reports whether a repetition says the same as the answer that decided its key: a success names the same
// effect, whatever its other fields and its status; a refusal has the same value. Successes without an id must be
// the same byte for byte: nothing else shows that there was one effect.
func (f *File) same(r traffic.Record, a traffic.Attempt, body []byte) bool {
	if a.Outcome != traffic.OK {
		return a.Problem == r.Problem()
	}
	first, again := field(r.Body, f.Answers.ID), field(body, f.Answers.ID)
	if first == "" && again == "" {
		return bytes.Equal(r.Body, body)
	}
	return first == again
}

// classify returns the outcome of an answer, and the value that names it in the report.
func (f *File) classify(status int, header http.Header, body []byte) (traffic.Outcome, string) {
	outcome, value := traffic.ClassifyByStatus(status, header, body)
	if f.Answers.Field != "" {
		value = field(body, f.Answers.Field)
	}
	for _, answer := range []string{rule(status, value), rule(status, "")} {
		if listed, found := f.rules[answer]; found {
			return listed, value
		}
	}
	return outcome, value
}

// decode returns the value of a JSON body; nil if it is none.
func decode(body []byte) (value any) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // a large number is an id, not a float
	_ = decoder.Decode(&value)
	return value
}

// field returns the value at a path of a JSON body, such as "error.code"; "" if there is none.
func field(body []byte, path string) string {
	value := decode(body)
	for name := range strings.SplitSeq(path, ".") {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	if value == nil {
		return ""
	}
	return fmt.Sprint(value)
}
