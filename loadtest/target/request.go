// SPDX-License-Identifier: MIT

package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"
)

// Request is a template of requests. Path and Body are text/template with
//
//	{{.Object}}       its object, for which requests contend
//	{{.Other}}        another one of its objects, for which it contends too
//	{{.Units}}        how many units of the object it takes
//	{{.Key}}          its idempotency key
//	{{.N}}            its number, from 0
//	{{.Client}}       the name of its client
//	{{.Answer.id}}    a field of the answer that it follows
//	{{pick "a" "b"}}  one of the arguments
//	{{int 1 3}}       a number from 1 to 3
//
// All values are drawn from the seed: the same seed sends the same requests.
type Request struct {
	Name    string
	Weight  int    // how often it is drawn, relative to the others; default 1
	Method  string // default POST
	Path    string
	Body    string
	Objects []string // one is drawn for each request; default: those of the supply, unless it is SQL. "seat-{1..20}" stands for twenty
	Takes   string   // units of its object that a success takes: "1" or "1..3"
	Gives   bool     // a success gives back what the request before it took
	Reads   bool     // it changes nothing, and two answers may differ; always true of GET and HEAD
	Shows   string   // of a read: the field of the answer with the units that are left of its object, such as stock
	Expect  []int    // it is not allowed, or cannot work: it must be answered with one of these statuses
	After   string   // the request whose successes it follows; it is not sent otherwise
	Share   Percent  // the share of these successes that it follows; default 10%
	As      string   // of After: the "same" client sends it, the default, or an "other" one

	least, most int // of Takes
	path, body  *template.Template
	other       bool // it has two objects
}

// Percent is a share: "5%" in YAML.
type Percent string

func (p Percent) share(otherwise float64) (float64, error) {
	if p == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(string(p), "%"), 64)
	if err != nil || !strings.HasSuffix(string(p), "%") && n != 0 || n < 0 || n > 100 {
		return 0, fmt.Errorf("want a share such as 5%%, not %q", string(p))
	}
	return n / 100, nil
}

// defaultShare is the default of Request.Share.
const defaultShare = 0.1

func (f *File) checkRequests() error {
	names := map[string]bool{}
	alone := 0
	for i := range f.Requests {
		r := &f.Requests[i]
		if r.Name == "" || names[r.Name] {
			return f.at(place("requests", i, "name"), "each request needs a name of its own")
		}
		names[r.Name] = true
		if err := f.prepare(i, r); err != nil {
			return err
		}
		if r.After == "" {
			alone += r.Weight
		}
	}
	if alone == 0 {
		return f.at(place("requests"), "each request has an after: none can be the first")
	}
	for i, r := range f.Requests {
		k := slices.IndexFunc(f.Requests, func(p Request) bool { return p.Name == r.After })
		switch {
		case r.After != "" && k < 0:
			return f.at(place("requests", i, "after"), "there is no request %q", r.After)
		case r.After != "" && f.Requests[k].After != "":
			return f.at(place("requests", i, "after"), "%q has an after itself, which only one of the two may", r.After)
		case r.Gives && (k < 0 || f.Requests[k].Takes == ""):
			return f.at(place("requests", i, "gives"), "gives: needs an after with a request that has takes")
		case r.After != "" && r.Takes != "" && len(f.Requests[k].Objects) == 0:
			return f.at(place("requests", i, "takes"), "takes needs an object, and %q has none", r.After)
		case r.As == "other" && len(f.Clients) < 2:
			return f.at(place("requests", i, "as"), "as: other needs a second one of clients")
		}
	}
	return nil
}

// prepare checks a request, sets its defaults, and tries its templates.
func (f *File) prepare(i int, r *Request) (err error) {
	wrong := func(field, format string, args ...any) error {
		return f.at(place("requests", i, field), field+": "+format, args...)
	}
	if r.Method == "" {
		r.Method = http.MethodPost
	}
	r.Reads = r.Reads || r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.Weight == 0 {
		r.Weight = 1
	}
	_, wrongShare := r.Share.share(0)
	switch {
	case r.Weight < 0:
		return wrong("weight", "must be at least 1")
	case !strings.HasPrefix(r.Path, "/"):
		return wrong("path", "must begin with /")
	case wrongShare != nil:
		return wrong("share", "%v", wrongShare)
	case r.Share != "" && r.After == "":
		return wrong("share", "needs after; without after, set weight")
	case r.Shows != "" && (!r.Reads || f.Supply.Kind == 0):
		return wrong("shows", "needs a read, and a supply")
	case !slices.Contains([]string{"", "same", "other"}, r.As) || r.As != "" && r.After == "":
		return wrong("as", "want same or other, of a request that has after")
	}
	if r.least, r.most, err = amount(r.Takes); err != nil {
		return wrong("takes", "%v", err)
	}
	if r.Objects, err = f.objects(r); err != nil {
		return wrong("objects", "%v", err)
	}
	r.other = strings.Contains(r.Path+r.Body, ".Other")
	if r.other && len(r.Objects) < 2 {
		return wrong("objects", "{{.Other}} needs two objects")
	}
	return f.try(r, wrong)
}

// try fills in the templates once, so that one that cannot be filled in is found before the load.
func (f *File) try(r *Request, wrong func(field, format string, args ...any) error) (err error) {
	functions := template.FuncMap{
		"pick": func(choices ...string) string { return choices[0] },
		"int":  func(low, _ int) int { return low },
	}
	if r.path, err = template.New("path").Funcs(functions).Option("missingkey=error").Parse(r.Path); err != nil {
		return wrong("path", "%v", err)
	}
	if r.body, err = template.New("body").Funcs(functions).Option("missingkey=error").Parse(r.Body); err != nil {
		return wrong("body", "%v", err)
	}
	if r.After != "" { // the fields of the answer are not known yet
		return nil
	}
	fields := drawn{Key: "key", Client: f.Clients[0].Name, Units: max(1, r.least)}
	if len(r.Objects) > 0 {
		fields.Object, fields.Other = r.Objects[0], r.Objects[len(r.Objects)-1]
	}
	_, body, err := r.fill(fields, functions)
	if err != nil {
		return wrong("body", "%v", err)
	}
	if len(body) > 0 && !json.Valid(body) && len(r.Expect) == 0 && f.sendsJSON() {
		return wrong("body", "%s is not JSON: if it need not be, set Content-Type in the headers of the clients", body)
	}
	return nil
}

// sendsJSON reports whether no client sets another Content-Type.
func (f *File) sendsJSON() bool {
	for _, c := range f.Clients {
		for name, value := range c.Headers {
			if http.CanonicalHeaderKey(name) == "Content-Type" && !strings.Contains(value, "json") {
				return false
			}
		}
	}
	return true
}

// fill executes the templates of the path and the body.
func (r *Request) fill(fields drawn, functions template.FuncMap) (path string, body []byte, err error) {
	var p, b bytes.Buffer
	for _, part := range []struct {
		template *template.Template
		into     *bytes.Buffer
	}{{r.path, &p}, {r.body, &b}} {
		own, err := part.template.Clone() // fill may be called concurrently
		if err != nil {
			return "", nil, err
		}
		if err := own.Funcs(functions).Execute(part.into, fields); err != nil {
			return "", nil, err
		}
	}
	return p.String(), b.Bytes(), nil
}

// amount parses "1" or "1..3".
func amount(text string) (least, most int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	from, to, isRange := strings.Cut(text, "..")
	if !isRange {
		to = from
	}
	least, wrongLeast := strconv.Atoi(from)
	most, wrongMost := strconv.Atoi(to)
	if wrongLeast != nil || wrongMost != nil || least < 1 || most < least {
		return 0, 0, fmt.Errorf("want a number from 1 on, or a range such as 1..3, not %q", text)
	}
	return least, most, nil
}

// objects returns the objects of a request; those of the supply if it lists none.
func (f *File) objects(r *Request) ([]string, error) {
	names := f.supplied
	if r.After != "" { // it has the object of the request that it follows
		names = nil
	}
	if r.Objects != nil {
		names = nil
		for _, text := range r.Objects {
			each, err := enumerate(text)
			if err != nil {
				return nil, err
			}
			names = append(names, each...)
		}
	}
	where := "list objects here or in supply"
	if f.Supply.Kind == yaml.ScalarNode {
		where = "list objects here: those of a supply in SQL are read when the run begins"
	}
	if r.Takes != "" && len(names) == 0 && r.After == "" {
		return nil, errors.New("takes needs an object, and there is none: " + where)
	}
	if strings.Contains(r.Path+r.Body, ".Object") && len(names) == 0 && r.After == "" {
		return nil, errors.New("there is none for {{.Object}}: " + where)
	}
	return names, nil
}

var counted = regexp.MustCompile(`^(.*)\{(\d+)\.\.(\d+)\}(.*)$`)

// mostObjects bounds how many objects a range such as "seat-{1..20}" stands for.
const mostObjects = 10_000

// enumerate returns the names that a text with a range such as "{1..20}" stands for. A text without a
// range stands for itself.
func enumerate(text string) (names []string, err error) {
	parts := counted.FindStringSubmatch(text)
	if parts == nil {
		return []string{text}, nil
	}
	from, _ := strconv.Atoi(parts[2])
	to, _ := strconv.Atoi(parts[3])
	if from > to || to-from >= mostObjects {
		return nil, fmt.Errorf("%s: want at least one object and at most %d", text, mostObjects)
	}
	for n := from; n <= to; n++ {
		names = append(names, fmt.Sprintf("%s%d%s", parts[1], n, parts[4]))
	}
	return names, nil
}
