package loadtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"text/template"

	"shop/locking/invariant"
)

// Template makes the requests to a service that is not ours. Path and Body are
// text/template with
//
//	{{.N}}            the number of the request, from 0
//	{{.Key}}          its idempotency key
//	{{pick "a" "b"}}  one of them
//	{{int 1 3}}       a number from 1 to 3
//
// drawn from the seed, so that the same seed sends the same.
type Template struct {
	Method, Path, Body string
}

// schedule draws a request for each moment of the load; one in ten is sent twice
// at once, to two addresses if there are two.
func (t *Template) schedule(load Load) ([]ScheduledRequest, error) {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 0))
	functions := template.FuncMap{
		"pick": func(choices ...string) string { return choices[random.IntN(len(choices))] },
		"int":  func(low, high int) int { return low + random.IntN(max(1, high-low+1)) },
	}
	path, err := template.New("path").Funcs(functions).Option("missingkey=error").Parse(t.Path)
	if err != nil {
		return nil, err
	}
	body, err := template.New("body").Funcs(functions).Option("missingkey=error").Parse(t.Body)
	if err != nil {
		return nil, err
	}
	run := rand.Uint32() // the service is not new: keys of an earlier run are taken
	n := max(1, int(load.Duration.Seconds()*float64(load.Rate)))
	var schedule []ScheduledRequest
	for i := range n {
		fields := struct {
			N   int
			Key string
		}{i, fmt.Sprintf("prove-%08x-%06d", run, i)}
		var p, b bytes.Buffer
		if err := path.Execute(&p, fields); err != nil {
			return nil, err
		}
		if err := body.Execute(&b, fields); err != nil {
			return nil, err
		}
		intent := &Intent{Key: fields.Key, Method: t.Method, Path: p.String(), Body: b.Bytes(), Contends: []string{"anything"}}
		at := load.At(i, n)
		replica := random.IntN(load.Replicas)
		schedule = append(schedule, ScheduledRequest{at, replica, intent})
		if i%DuplicateEvery == 0 {
			schedule = append(schedule, ScheduledRequest{at, (replica + 1) % load.Replicas, intent})
		}
	}
	return schedule, nil
}

// ParseChecks reads a file of queries, each of which ends with a semicolon at the end of a
// line. A comment "-- name: S1" before one names it.
func ParseChecks(text string) []invariant.Check {
	checks := invariant.Parse(text).Checks
	for i := range checks {
		// Whatever columns it returns, a row is a violation, and its text is its id.
		checks[i].Query = "SELECT violation::text FROM (\n" + checks[i].Query + "\n) violation"
	}
	return checks
}
