// SPDX-License-Identifier: MIT

package target

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"go.yaml.in/yaml/v3"

	"shop/loadtest/traffic"
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
	Takes   Amount   // units of its object that a success takes
	Gives   bool     // a success gives back what the request before it took
	Reads   bool     // it changes nothing, and two answers may differ; always true of GET and HEAD
	Shows   string   // of a read: the field of the answer with the units that are left of its object, such as stock
	Expect  []int    // it is not allowed, or cannot work: it must be answered with one of these statuses
	After   string   // the request whose successes it follows; it is not sent otherwise
	Share   *Percent // the share of these successes that it follows; default 10%
	As      string   // of After: the "same" client sends it, the default, or an "other" one
}

// Amount is a number of units to draw: "1" or "1..3" in YAML.
type Amount struct{ Least, Most int }

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *Amount) UnmarshalYAML(node *yaml.Node) error {
	from, to, isRange := strings.Cut(node.Value, "..")
	if !isRange {
		to = from
	}
	least, wrongLeast := strconv.Atoi(from)
	most, wrongMost := strconv.Atoi(to)
	if wrongLeast != nil || wrongMost != nil || least < 1 || most < least {
		return fmt.Errorf("line %d: want a number from 1 on, or a range such as 1..3, not %q", node.Line, node.Value)
	}
	*a = Amount{least, most}
	return nil
}

// Percent is a share: "5%" in YAML.
type Percent float64

// UnmarshalYAML implements yaml.Unmarshaler.
func (p *Percent) UnmarshalYAML(node *yaml.Node) error {
	text, isPercent := strings.CutSuffix(node.Value, "%")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || !isPercent && n != 0 || !(n >= 0 && n <= 100) { // NaN is neither
		return fmt.Errorf("line %d: want a share such as 5%%, not %q", node.Line, node.Value)
	}
	*p = Percent(n / 100)
	return nil
}

// defaultShare is the default of Request.Share.
const defaultShare Percent = 0.1

// takes reports whether a success takes units.
func (r *Request) takes() bool { return r.Takes.Most > 0 && len(r.Expect) == 0 }

// writes reports whether a success changes something, as it may.
func (r *Request) writes() bool { return !r.Reads && len(r.Expect) == 0 }

// uses reports whether a template has a field.
func (r *Request) uses(field string) bool { return strings.Contains(r.Path+r.Body, field) }

// checkRequests sets defaults, rejects settings that cannot work, and tries the templates.
func (f *File) checkRequests() (err error) {
	byName := map[string]*Request{}
	for i := range f.Requests {
		r := &f.Requests[i]
		if r.Name == "" || byName[r.Name] != nil {
			return f.at(place("requests", i, "name"), "each request needs a name of its own")
		}
		byName[r.Name] = r
		r.Weight, r.Method = cmp.Or(r.Weight, 1), cmp.Or(r.Method, http.MethodPost)
		r.Reads = r.Reads || r.Method == http.MethodGet || r.Method == http.MethodHead
		if r.Objects, err = enumerate(r.Objects...); err != nil {
			return f.at(place("requests", i, "objects"), "%v", err)
		}
		if r.Objects == nil && r.After == "" { // what follows a request has the object of that one
			r.Objects = f.Supply.objects
		}
	}
	if !slices.ContainsFunc(f.Requests, func(r Request) bool { return r.After == "" }) {
		return f.at(place("requests"), "each request has an after: none can be the first")
	}
	for i := range f.Requests {
		r := &f.Requests[i]
		if err := cmp.Or(f.first(f.mistakes(i, r, byName[r.After])), f.try(i, r)); err != nil {
			return err
		}
	}
	return nil
}

// mistakes lists what may be wrong with the i-th request, which follows another one unless before is nil.
func (f *File) mistakes(i int, r, before *Request) []mistake {
	field := func(name string) []any { return place("requests", i, name) }
	where := "list objects here or in supply"
	if f.Supply.SQL != "" {
		where = "list objects here: those of a supply in SQL are read when the run begins"
	}
	return []mistake{
		{r.Weight < 1, field("weight"), "weight must be at least 1"},
		{!strings.HasPrefix(r.Path, "/"), field("path"), "path must begin with /"},
		{r.Shows != "" && (!r.Reads || !f.Supply.given()), field("shows"), "shows: needs a read, and a supply"},
		{r.After == "" && len(r.Objects) == 0 && (r.Takes.Most > 0 || r.uses(".Object")), field("objects"), "takes and {{.Object}} need an object, and there is none: " + where},
		{r.uses(".Other") && len(r.Objects) < 2, field("objects"), "{{.Other}} needs two objects"},
		{r.After != "" && before == nil, field("after"), fmt.Sprintf("there is no request %q", r.After)},
		{before != nil && before.After != "", field("after"), fmt.Sprintf("%q has an after itself, which only one of the two may", r.After)},
		{r.Share != nil && r.After == "", field("share"), "share needs after; without after, set weight"},
		{r.As != "" && (r.After == "" || r.As != "same" && r.As != "other"), field("as"), "as: want same or other, of a request that has after"},
		{r.As == "other" && len(f.Clients) < 2, field("as"), "as: other needs a second one of clients"},
		{r.Gives && (before == nil || before.Takes.Most == 0), field("gives"), "gives: needs an after with a request that has takes"},
		{r.Takes.Most > 0 && before != nil && len(before.Objects) == 0, field("takes"), fmt.Sprintf("takes needs an object, and %q has none", r.After)},
	}
}

// try fills in the templates once, so that one that cannot be filled in is found before the load.
func (f *File) try(i int, r *Request) error {
	intent, err := f.intent(rand.New(rand.NewPCG(0, 0)), r, 0, 0, sent{}, "key")
	if r.After != "" && errors.As(err, new(template.ExecError)) {
		return nil // the fields of the answer are not known yet
	}
	if err != nil {
		return f.at(place("requests", i), "%v", err)
	}
	notJSON := func(h http.Header) bool { return !strings.Contains(h.Get("Content-Type"), "json") }
	if len(intent.Body) > 0 && r.After == "" && len(r.Expect) == 0 && !json.Valid(intent.Body) && !slices.ContainsFunc(f.headers().Clients, notJSON) {
		return f.at(place("requests", i, "body"), "%s is not JSON: if it need not be, set Content-Type in the headers of the clients", intent.Body)
	}
	return nil
}

var counted = regexp.MustCompile(`^(.*)\{(\d+)\.\.(\d+)\}(.*)$`)

// mostObjects bounds how many objects a range such as "seat-{1..20}" stands for.
const mostObjects = 10_000

// enumerate returns the names that some texts stand for: a text with a range such as "{1..20}" for one with each number,
// any other text for itself.
func enumerate(texts ...string) (names []string, err error) {
	for _, text := range texts {
		parts := counted.FindStringSubmatch(text)
		if parts == nil {
			names = append(names, text)
			continue
		}
		from, _ := strconv.Atoi(parts[2])
		to, _ := strconv.Atoi(parts[3])
		if from > to || to-from >= mostObjects {
			return nil, fmt.Errorf("%s: want at least one object and at most %d", text, mostObjects)
		}
		for n := from; n <= to; n++ {
			names = append(names, fmt.Sprintf("%s%d%s", parts[1], n, parts[4]))
		}
	}
	return names, nil
}

// sent is the Of of an intent. A template may use its fields.
type sent struct {
	*Request
	N, Units                   int
	Key, Client, Object, Other string
	Answer                     any
}

func of(r traffic.Intent) sent { return r.Of.(sent) }

// draw draws the whole plan. The same seed gives the same requests, under new keys: run makes them unique, since the service
// may have stored those of an earlier run.
func (f *File) draw(load traffic.Load, run uint32) (traffic.Plan, error) {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 0))
	n := max(1, int(load.Duration.Seconds()*float64(load.Rate)))
	plan := traffic.Plan{Clients: len(f.Clients)}
	burst, hot := 0, sent{} // hot has the object of the burst
	for i, m := range load.Slots(random, n) {
		r := f.choose(random)
		if m.Burst != burst {
			burst, hot.Object = m.Burst, ""
		}
		if burst > 0 && hot.Object == "" && len(r.Objects) > 0 {
			hot.Object = r.Objects[traffic.Uneven(random, len(r.Objects))]
		}
		intent, err := f.intent(random, r, i, random.IntN(len(f.Clients)), hot, fmt.Sprintf("prove-%08x-%06d", run, i))
		if err != nil {
			return plan, fmt.Errorf("request %q: %w", r.Name, err)
		}
		plan.Add(random, load.Replicas, traffic.ScheduledRequest{At: m.At, Replica: m.Replica, Intent: intent})
	}
	return plan, nil
}

// choose draws, by weight, one of the requests that follow no other request.
func (f *File) choose(random *rand.Rand) (chosen *Request) {
	total := 0
	for i := range f.Requests {
		if r := &f.Requests[i]; r.After == "" {
			if total += r.Weight; random.IntN(total) < r.Weight {
				chosen = r // instead of one before, in proportion to its weight
			}
		}
	}
	return chosen
}

// intent fills in a template. It gets the values of the request that it follows, and the object of its burst if
// it may concern that one.
func (f *File) intent(random *rand.Rand, r *Request, n, client int, follows sent, key string) (*traffic.Intent, error) {
	fields := follows
	fields.Request, fields.N, fields.Key, fields.Client = r, n, key, f.Clients[client].Name
	if len(r.Objects) > 0 && (r.After == "" || fields.Object == "") {
		i := slices.Index(r.Objects, fields.Object)
		if i < 0 {
			i = random.IntN(len(r.Objects))
		}
		fields.Object = r.Objects[i]
		fields.Other = r.Objects[(i+1+random.IntN(max(1, len(r.Objects)-1)))%len(r.Objects)]
	}
	if r.Takes.Most > 0 {
		fields.Units = r.Takes.Least + random.IntN(r.Takes.Most-r.Takes.Least+1)
	}
	path, wrongPath := fill("path", r.Path, random, fields)
	body, wrongBody := fill("body", r.Body, random, fields)
	intent := &traffic.Intent{
		Client: client, Key: key, Action: traffic.Action(r.Name), Method: r.Method, Path: path, Body: []byte(body),
		Contends: []string{cmp.Or(fields.Object, r.Name)}, Of: fields, Ends: r.After != "", Reads: r.Reads,
		GivesUp: r.writes() && random.IntN(traffic.GiveUpEvery) == 0, // like a client that goes away
	}
	if r.uses(".Other") {
		intent.Contends = []string{fields.Object, fields.Other}
	}
	if len(r.Expect) > 0 {
		intent.Contends = nil // it must be refused
	}
	return intent, cmp.Or(wrongPath, wrongBody)
}

// fill executes a template.
func fill(name, text string, random *rand.Rand, fields sent) (string, error) {
	if !strings.Contains(text, "{{") {
		return text, nil
	}
	functions := template.FuncMap{
		"pick": func(choices ...string) string { return choices[random.IntN(len(choices))] },
		"int":  func(low, high int) int { return low + random.IntN(max(1, high-low+1)) },
	}
	var filled strings.Builder
	t, err := template.New(name).Funcs(functions).Option("missingkey=error").Parse(text)
	if err == nil {
		err = t.Execute(&filled, fields)
	}
	return filled.String(), err
}

// followUp returns the requests that follow a success. It draws them from the seed and the number of the
// request, since answers arrive in any order.
func (f *File) followUp(record traffic.Record) (requests []traffic.ScheduledRequest) {
	before := of(record.Intent)
	if record.Outcome != traffic.OK {
		return nil
	}
	before.Answer = decode(record.Body)
	for i := range f.Requests {
		r := &f.Requests[i]
		if r.After != before.Name {
			continue
		}
		random := traffic.RandomFor(fmt.Sprint(f.Seed, " ", i, " ", before.N))
		if share := cmp.Or(r.Share, new(defaultShare)); random.Float64() >= float64(*share) {
			continue
		}
		client := record.Client
		if r.As == "other" {
			client = (client + 1 + random.IntN(len(f.Clients)-1)) % len(f.Clients)
		}
		intent, err := f.intent(random, r, before.N, client, before, fmt.Sprintf("%s-%d", record.Key, i))
		if err == nil { // else the answer lacks a field of the template: the review reports a request that is never sent
			requests = append(requests, traffic.Soon(random, intent))
		}
	}
	return requests
}
