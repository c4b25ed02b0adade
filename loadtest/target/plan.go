// SPDX-License-Identifier: MIT

package target

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"slices"
	"text/template"
	"time"

	"shop/loadtest/traffic"
)

// drawn holds the values that a template may use.
type drawn struct {
	N             int
	Key           string
	Object, Other string
	Units         int
	Client        string
	Answer        map[string]any
}

// sent is the Of of an intent.
type sent struct {
	drawn
	request *Request
}

func of(r traffic.Intent) sent {
	s, _ := r.Of.(sent)
	return s
}

// plan draws the requests of the load, and those that follow answers.
type plan struct {
	file     *File
	replicas int
	run      uint32 // makes keys unique: the service may have stored those of an earlier run
}

// givesUp: one request in this many is not retried after an answer that nothing was done, like that of a
// client that goes away. It must then have no effect.
const givesUp = 20

// draw draws the whole plan. The same seed gives the same requests, under new keys.
func (p *plan) draw(load traffic.Load) (traffic.Plan, error) {
	random := rand.New(rand.NewPCG(uint64(load.Seed), 0))
	n := max(1, int(load.Duration.Seconds()*float64(load.Rate)))
	drawn := traffic.Plan{Clients: len(p.file.Clients)}
	burst, hot := 0, sent{} // hot has the object of the burst
	for i, m := range load.Slots(random, n) {
		r := p.choose(random)
		if m.Burst != burst {
			burst, hot.Object = m.Burst, ""
		}
		if burst > 0 && hot.Object == "" && len(r.Objects) > 0 {
			hot.Object = r.Objects[traffic.Uneven(random, len(r.Objects))]
		}
		intent, err := p.intent(random, r, i, random.IntN(len(p.file.Clients)), hot, fmt.Sprintf("prove-%08x-%06d", p.run, i))
		if err != nil {
			return drawn, fmt.Errorf("request %q: %w", r.Name, err)
		}
		drawn.Add(random, load.Replicas, traffic.ScheduledRequest{At: m.At, Replica: m.Replica, Intent: intent})
	}
	return drawn, nil
}

// choose draws, by weight, one of the requests that follow no other request.
func (p *plan) choose(random *rand.Rand) *Request {
	total := 0
	for _, r := range p.file.Requests {
		if r.After == "" {
			total += r.Weight
		}
	}
	at := random.IntN(total)
	for i := range p.file.Requests {
		r := &p.file.Requests[i]
		if r.After != "" {
			continue
		}
		if at -= r.Weight; at < 0 {
			return r
		}
	}
	panic("unreachable: at is below the sum of the weights")
}

// intent fills in a template. It gets the values of the request that it follows, and the object of its burst if
// it may concern that one.
func (p *plan) intent(random *rand.Rand, r *Request, n, client int, follows sent, key string) (*traffic.Intent, error) {
	fields := follows.drawn
	fields.N, fields.Key, fields.Client = n, key, p.file.Clients[client].Name
	if len(r.Objects) > 0 && (r.After == "" || fields.Object == "") {
		i := slices.Index(r.Objects, fields.Object)
		if i < 0 {
			i = random.IntN(len(r.Objects))
		}
		fields.Object = r.Objects[i]
		fields.Other = r.Objects[(i+1+random.IntN(max(1, len(r.Objects)-1)))%len(r.Objects)]
	}
	if r.Takes != "" {
		fields.Units = r.least + random.IntN(r.most-r.least+1)
	}
	path, body, err := r.fill(fields, template.FuncMap{
		"pick": func(choices ...string) string { return choices[random.IntN(len(choices))] },
		"int":  func(low, high int) int { return low + random.IntN(max(1, high-low+1)) },
	})
	if err != nil {
		return nil, err
	}
	return &traffic.Intent{
		Client: client, Key: key, Action: traffic.Action(r.Name), Method: r.Method, Path: path, Body: body,
		Contends: r.contends(fields), Of: sent{fields, r}, Ends: r.After != "", Reads: r.Reads,
		GivesUp: !r.Reads && random.IntN(givesUp) == 0,
	}, nil
}

// contends returns the objects for which a request contends. One that must be refused contends for nothing.
func (r *Request) contends(fields drawn) []string {
	switch {
	case len(r.Expect) > 0:
		return nil
	case r.other:
		return []string{fields.Object, fields.Other}
	}
	return []string{cmp.Or(fields.Object, r.Name)}
}

// followUp returns the requests that follow a success. It draws them from the seed and the number of the
// request, since answers arrive in any order.
func (p *plan) followUp(record traffic.Record) (requests []traffic.ScheduledRequest) {
	before := of(record.Intent)
	if record.Outcome != traffic.OK || before.request == nil || before.request.After != "" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(record.Body))
	decoder.UseNumber() // a large number is an id, not a float
	_ = decoder.Decode(&before.Answer)
	for i := range p.file.Requests {
		r := &p.file.Requests[i]
		if r.After != before.request.Name {
			continue
		}
		random := rand.New(rand.NewPCG(uint64(p.file.Seed), hash(fmt.Sprint(i, " ", before.N))))
		share, _ := r.Share.share(defaultShare) // checked by prepare
		if random.Float64() >= share {
			continue
		}
		client := record.Client
		if r.As == "other" {
			client = (client + 1 + random.IntN(len(p.file.Clients)-1)) % len(p.file.Clients)
		}
		intent, err := p.intent(random, r, before.N, client, before, fmt.Sprintf("%s-%d", record.Key, i))
		if err != nil {
			continue // the answer lacks a field of the template: the review reports a request that is never sent
		}
		requests = append(requests, traffic.ScheduledRequest{At: time.Duration(random.IntN(50)) * time.Millisecond, Replica: random.IntN(p.replicas), Intent: intent})
	}
	return requests
}

func hash(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return h.Sum64()
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
