// SPDX-License-Identifier: MIT

package target

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
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
	Supply    yaml.Node // units of each object before the first request, or SQL that returns them
	Answers   Answers
	Database  string // PostgreSQL, for audits and a supply in SQL
	Audits    []Audit
	Limits    Limits

	dir      string // the folder of the file, in which commands run
	root     *yaml.Node
	given    map[string]int // Supply, if it is not SQL
	supplied []string       // its objects, in the order of the file
	limits   limits
	rules    rules
}

// Client sends requests with headers of its own.
type Client struct {
	Name    string
	Headers map[string]string
}

// Defaults of a File.
const (
	defaultRate      = 100
	defaultDuration  = 5 * time.Second
	defaultWait      = 20 * time.Second
	defaultKeyHeader = "Idempotency-Key"
)

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
	f.dir = filepath.Dir(path)
	if f.Name == "" {
		f.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return f, nil
}

func parse(text []byte, over Override, getenv func(string) string) (*File, error) {
	f := &File{
		Start: defaultWait, Rate: defaultRate, Duration: defaultDuration, Decide: defaultWait, Seed: 1,
		KeyHeader: defaultKeyHeader, root: &yaml.Node{},
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	err := yaml.Unmarshal(text, f.root)
	if err == nil {
		err = decoder.Decode(f)
	}
	switch {
	case errors.Is(err, io.EOF):
		return nil, errors.New("the file is empty")
	case err != nil:
		return nil, plainer(err)
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
	return f, f.check()
}

var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongType    = regexp.MustCompile("cannot unmarshal !!(\\S+) (`[^`]*` )?into (\\S+)")
)

// plainer rephrases an error of the YAML decoder for the author of the file.
func plainer(err error) error {
	var typed *yaml.TypeError
	if !errors.As(err, &typed) {
		return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	lines := slices.Compact(slices.Clone(typed.Errors))
	for i, line := range lines {
		line = unknownField.ReplaceAllString(line, `there is no field "$1" here`)
		lines[i] = wrongType.ReplaceAllStringFunc(line, func(match string) string {
			parts := wrongType.FindStringSubmatch(match)
			return strings.TrimSpace(fmt.Sprintf("want %s, not %s %s", called(parts[3]), called(parts[1]), parts[2]))
		})
	}
	return errors.New(strings.Join(lines, "; "))
}

// called names a YAML or Go type in words.
func called(name string) string {
	switch name {
	case "int", "float":
		return "a number"
	case "str", "string", "target.Percent":
		return "a text"
	case "bool":
		return "true or false"
	case "time.Duration":
		return "a duration such as 5s"
	case "seq":
		return "a list"
	case "map":
		return "a mapping"
	}
	if strings.HasPrefix(name, "[]") {
		return "a list"
	}
	return "a mapping"
}

// at returns an error with the line of a place in the file, such as ("requests", 2, "body"). For a place
// that does not exist it is the line of the closest enclosing one.
func (f *File) at(place []any, format string, args ...any) error {
	node, line := f.root, 1
	for _, step := range place {
		node = child(node, step)
		if node == nil {
			break
		}
		line = node.Line
	}
	return fmt.Errorf("line %d: %s", line, fmt.Sprintf(format, args...))
}

func child(node *yaml.Node, step any) *yaml.Node {
	if node.Kind == yaml.DocumentNode && len(node.Content) == 1 {
		node = node.Content[0]
	}
	switch step := step.(type) {
	case int:
		if node.Kind == yaml.SequenceNode && step < len(node.Content) {
			return node.Content[step]
		}
	case string:
		for i := 0; node.Kind == yaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				return node.Content[i+1]
			}
		}
	}
	return nil
}

func place(steps ...any) []any { return steps }

// check rejects settings that cannot work, before anything is sent.
func (f *File) check() error {
	switch {
	case len(f.Services) == 0:
		return f.at(nil, "services: no address is given")
	case len(f.Requests) == 0:
		return f.at(nil, "requests: none is given")
	case f.Rate < 1:
		return f.at(place("rate"), "rate must be at least 1")
	case f.Duration <= 0:
		return f.at(place("duration"), "duration must be above 0, such as 5s")
	case f.KeyHeader == "":
		return f.at(place("idempotency_header"), "idempotency_header must not be empty: without a key no request can be retried")
	}
	for i, service := range f.Services {
		if u, err := url.Parse(service); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return f.at(place("services", i), "not the URL of a service (not shown, since it may hold a password): want http://127.0.0.1:8080")
		}
	}
	f.Services = distinct(f.Services)
	if len(f.Clients) == 0 {
		f.Clients = []Client{{}}
	}
	names := map[string]bool{}
	for i := range f.Clients {
		name := &f.Clients[i].Name
		if *name == "" {
			*name = fmt.Sprintf("client %d", i+1)
		}
		if names[*name] {
			return f.at(place("clients", i, "name"), "each client needs a name of its own: %s is a client above", *name)
		}
		names[*name] = true
	}
	for _, check := range []func() error{f.checkSupply, f.checkRequests, f.checkAnswers, f.checkAudits, f.checkLimits} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// distinct removes duplicate addresses, which are one replica.
func distinct(services []string) (kept []string) {
	for _, service := range services {
		if service = strings.TrimSuffix(service, "/"); !slices.Contains(kept, service) {
			kept = append(kept, service)
		}
	}
	return kept
}

// host returns an address without a password, for errors and hints.
func host(service string) string {
	u, err := url.Parse(service)
	if err != nil {
		return "a service"
	}
	return u.Host
}

var variable = regexp.MustCompile(`\$\{(\w+)(:-([^}]*))?\}`)

// expand replaces ${NAME} and ${NAME:-default} with environment variables in the fields that hold secrets
// and addresses: the name, services, headers, the database and commands.
func (f *File) expand(getenv func(string) string) (err error) {
	fill := func(text *string, steps ...any) {
		*text = variable.ReplaceAllStringFunc(*text, func(match string) string {
			parts := variable.FindStringSubmatch(match)
			value := getenv(parts[1])
			if value == "" && parts[2] != "" {
				value = parts[3]
			} else if value == "" && err == nil {
				err = f.at(steps, "%s is not set in the environment", match)
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
