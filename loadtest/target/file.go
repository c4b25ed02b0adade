package target

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// File is what a team commits: a service, what is sent to it, and what must be true
// afterwards. Each field stands in YAML under its name in lower case, or the one in its tag.
type File struct {
	Name      string        // of the service, in reports; default: the file's
	Services  []string      // addresses: one for each replica, or one of a load balancer
	Start     time.Duration `yaml:"start_within"` // how long the services may take until they accept connections
	Rate      int           // new requests in a second
	Duration  time.Duration // of the load
	Decide    time.Duration `yaml:"decide_within"` // how long undecided keys are sent again after it
	Seed      int64
	KeyHeader string `yaml:"idempotency_header"`
	Clients   []Client
	Requests  []Request
	Supply    yaml.Node // units of each object before the first request, or SQL that returns them
	Answers   Answers
	Database  string // PostgreSQL, for audits and a supply in SQL
	Audits    []Audit
	Limits    Limits

	dir      string // of the file: commands run in it
	root     *yaml.Node
	given    map[string]int // Supply, if it is not SQL
	supplied []string       // its objects, in the order of the file
	limits   limits
	rules    rules
}

// Client sends requests under headers of its own.
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

// Read reads a file. getenv gives the values of ${NAME}. An error says the line.
func Read(path string, getenv func(string) string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(text, getenv)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f.dir = filepath.Dir(path)
	if f.Name == "" {
		f.Name = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	}
	return f, nil
}

func parse(text []byte, getenv func(string) string) (*File, error) {
	f := &File{
		Start: defaultWait, Rate: defaultRate, Duration: defaultDuration, Decide: defaultWait, Seed: 1,
		KeyHeader: defaultKeyHeader, root: &yaml.Node{},
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := errors.Join(yaml.Unmarshal(text, f.root), decoder.Decode(f)); err != nil {
		return nil, plainer(err)
	}
	if err := f.expand(getenv); err != nil {
		return nil, err
	}
	return f, f.check()
}

var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongType    = regexp.MustCompile("cannot unmarshal !!(\\S+) (`[^`]*` )?into (\\S+)")
)

// plainer says of an error of the YAML decoder what its writer can act on.
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
			return fmt.Sprintf("%s %sstands where %s must", called(parts[1]), parts[2], called(parts[3]))
		})
	}
	return errors.New(strings.Join(lines, "; "))
}

// called names a type of YAML or Go in words.
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

// at is an error with the line of a place in the file, such as ("requests", 2, "body").
// A place that is not there has the line of what it would be in.
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

// check finds what cannot work before anything is sent.
func (f *File) check() error {
	switch {
	case len(f.Services) == 0:
		return f.at(nil, "services: no address is given")
	case len(f.Requests) == 0:
		return f.at(nil, "requests: there are none to send")
	case f.Rate < 1:
		return f.at(place("rate"), "rate must be at least 1")
	case f.Duration <= 0:
		return f.at(place("duration"), "duration must be above 0, such as 5s")
	case f.KeyHeader == "":
		return f.at(place("idempotency_header"), "idempotency_header: without a key no request can be sent again")
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
	for i := range f.Clients {
		if f.Clients[i].Name == "" {
			f.Clients[i].Name = fmt.Sprintf("client %d", i+1)
		}
	}
	for _, check := range []func() error{f.checkSupply, f.checkRequests, f.checkAnswers, f.checkAudits, f.checkLimits} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// distinct leaves out addresses that are there already: they are one replica.
func distinct(services []string) (kept []string) {
	for _, service := range services {
		if service = strings.TrimSuffix(service, "/"); !slices.Contains(kept, service) {
			kept = append(kept, service)
		}
	}
	return kept
}

// host is an address as errors and hints may show it: without a password.
func host(service string) string {
	u, err := url.Parse(service)
	if err != nil {
		return "a service"
	}
	return u.Host
}

var variable = regexp.MustCompile(`\$\{(\w+)(:-([^}]*))?\}`)

// expand puts environment variables in place of ${NAME} and ${NAME:-default}, where
// secrets and addresses stand: in the name, services, headers, the database and commands.
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
