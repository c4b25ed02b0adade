// SPDX-License-Identifier: MIT

package target

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

// review finds why a run shows nothing, and which settings may be wrong.
type review struct {
	file    *File
	supply  map[string]int
	records []traffic.Record
	blind   []string // why audits show nothing
}

// inconclusive returns the reasons why the run could not have found anything.
func (v *review) inconclusive(overlaps int64) (reasons []string) {
	if !slices.ContainsFunc(v.records, func(r traffic.Record) bool { return r.Outcome == traffic.OK && !r.Reads }) {
		return []string{"no request succeeded: " + ended(v.records)} // the cause of all other reasons
	}
	if overlaps < judge.OverlapsLeast {
		reasons = append(reasons, fmt.Sprintf("%d pairs of requests with different keys overlapped for one object on different replicas, and at least %d must: raise rate or duration, or name fewer objects", overlaps, judge.OverlapsLeast))
	}
	for _, request := range v.file.Requests {
		if reason := v.vain(request); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	if reason := v.notSoldOut(); reason != "" {
		reasons = append(reasons, reason)
	}
	return append(reasons, v.blind...)
}

// vain returns why a request of the file shows nothing; "" if it shows something.
func (v *review) vain(request Request) string {
	own := v.of(request)
	switch {
	case len(own) == 0 && request.After != "":
		return fmt.Sprintf("request %q was never sent: no success of %q, or its answers lack a field that the templates use, or share is too low", request.Name, request.After)
	case len(own) == 0:
		return fmt.Sprintf("request %q was never sent: raise its weight, or duration", request.Name)
	case request.hidden(own):
		return fmt.Sprintf("answers to %q have no number in %q: is shows right?", request.Name, request.Shows)
	case len(request.Expect) > 0 || slices.ContainsFunc(own, func(r traffic.Record) bool { return r.Outcome == traffic.OK }):
		return ""
	}
	return fmt.Sprintf("no request %q succeeded: %s: if it must not succeed, set expect: [STATUS]", request.Name, ended(own))
}

// of returns the records of one request of the file.
func (v *review) of(request Request) (own []traffic.Record) {
	for _, r := range v.records {
		if string(r.Action) == request.Name {
			own = append(own, r)
		}
	}
	return own
}

// notSoldOut returns a reason if the supply exceeds the demand for every object.
func (v *review) notSoldOut() string {
	wanted, there := 0, 0
	for _, b := range balances(v.supply, v.records) {
		if b.wanted > b.there {
			return ""
		}
		wanted, there = wanted+b.wanted, there+b.there
	}
	if v.supply == nil {
		return ""
	}
	return fmt.Sprintf("clients wanted %d units, and %d were there: nothing could sell out: raise rate or duration, or lower the supply", wanted, there)
}

// hints returns which settings may be wrong.
func (v *review) hints() (hints []string) {
	hints = append(hints, v.undecided()...)
	hints = append(hints, v.repetitions()...)
	hints = append(hints, v.all()...)
	hints = append(hints, v.keyIgnored()...)
	hints = append(hints, v.strangers()...)
	return append(hints, v.silentServices()...)
}

// undecided groups the undecided keys by their last answer, which the file may have to list.
func (v *review) undecided() (hints []string) {
	for _, group := range endings(v.records, func(r traffic.Record) bool { return !r.Outcome.Final() && !r.GivesUp }) {
		entry := strings.TrimSpace(fmt.Sprintf("%d %s", group.status, v.listed(group)))
		switch {
		case group.status == 0:
			hints = append(hints, fmt.Sprintf("%d keys ended without an answer, such as %q: does the service run? Its log may say why", group.n, group.body))
		case group.status >= 500 && v.file.rules[entry] == "":
			hints = append(hints, fmt.Sprintf("%d keys ended in %s: the log of the service may say why; if this answer means that nothing was done, set answers: {open: [%s]}", group.n, entry, entry))
		case v.file.rules[entry] == traffic.Open || v.file.rules[entry] == traffic.Unknown:
			hints = append(hints, fmt.Sprintf("%d keys ended in %s, which the file lists as %s, and no retry within %v decided them", group.n, entry, v.file.rules[entry], v.file.Decide))
		default:
			hints = append(hints, fmt.Sprintf("%d keys ended in %s: is that a refusal? Set answers: {rejected: [%s]}", group.n, entry, entry))
		}
	}
	return hints
}

// repetitions groups the keys that succeeded by how their last repetition ended, if it decided nothing.
func (v *review) repetitions() (hints []string) {
	groups := map[string]int{}
	for _, r := range v.records {
		if last := r.Last(); r.Outcome == traffic.OK && !r.Reads && last.Outcome == traffic.Unknown && last.Status >= 400 && last.Status < 500 {
			groups[strings.TrimSpace(fmt.Sprintf("%d %s", last.Status, v.listed(ending{status: last.Status, problem: last.Problem})))]++
		}
	}
	for _, entry := range slices.Sorted(maps.Keys(groups)) {
		hints = append(hints, fmt.Sprintf("%d keys succeeded, and their repetitions ended in %s: does that mean that it had happened? Set answers: {duplicate: [%s]}", groups[entry], entry, entry))
	}
	return hints
}

// listed returns the value that a rule needs beside the status; "" if the status is all that is known.
func (v *review) listed(e ending) string {
	if e.problem == http.StatusText(e.status) {
		return ""
	}
	return e.problem
}

// all hints at a setting if at least half of the keys ended in the same status.
func (v *review) all() []string {
	groups := endings(v.records, func(r traffic.Record) bool { return len(of(r.Intent).expect()) == 0 })
	if len(groups) == 0 || 2*groups[0].n < len(v.records) {
		return nil
	}
	hint := map[int]string{
		401: "are the headers of the clients right, and are their secrets still valid?",
		403: "may these clients do this?",
		404: "are the path and the objects right?",
		405: "is the method right?",
		400: "are the body and idempotency_header right?",
		415: "is the Content-Type in the headers of the clients right?",
		422: "is the body right?",
	}[groups[0].status]
	if hint == "" {
		return nil
	}
	text := fmt.Sprintf("%d of %d keys ended in %d: %s", groups[0].n, len(v.records), groups[0].status, hint)
	if body := groups[0].body; body != "" {
		text += " The service says: " + body
	}
	return []string{text}
}

func (s sent) expect() []int {
	if s.request == nil {
		return nil
	}
	return s.request.Expect
}

// keyIgnored detects a service that reads the key from another header.
func (v *review) keyIgnored() []string {
	twice, diverged := 0, 0
	for _, r := range v.records {
		if r.Reads || r.Outcome != traffic.OK {
			continue
		}
		answers := 0
		for _, a := range r.Attempts {
			if a.Outcome == traffic.OK {
				answers++
			}
		}
		if answers > 1 {
			if twice++; r.Diverged {
				diverged++
			}
		}
	}
	if twice < 3 || diverged < twice {
		return nil
	}
	return []string{fmt.Sprintf("each of %d keys that succeeded and were sent again got another answer: does the service read the key from the header %s? Set idempotency_header. Does %q name what was done? Set answers: {id: FIELD}", twice, v.file.KeyHeader, cmp.Or(v.file.Answers.ID, defaultID))}
}

// strangers lists the clients of which the service knows nothing, while it knows others.
func (v *review) strangers() (hints []string) {
	keys, unknown, ok := make([]int, len(v.file.Clients)), make([]int, len(v.file.Clients)), 0
	for _, r := range v.records {
		if r.Reads || len(of(r.Intent).expect()) > 0 {
			continue
		}
		keys[r.Client]++
		switch {
		case r.Status() == http.StatusUnauthorized:
			unknown[r.Client]++
		case r.Outcome == traffic.OK:
			ok++
		}
	}
	for i, n := range unknown {
		if n > 0 && n == keys[i] && ok > 0 {
			hints = append(hints, fmt.Sprintf("all %d keys of %s ended in 401, while %d of other clients succeeded: are the headers of %s right?", n, v.file.Clients[i].Name, ok, v.file.Clients[i].Name))
		}
	}
	return hints
}

// silentServices lists the addresses that returned no success, if there are enough successes for that not
// to be chance.
func (v *review) silentServices() (hints []string) {
	ok := make([]int, len(v.file.Services))
	any := 0
	for _, r := range v.records {
		for _, a := range r.Attempts {
			if a.Outcome == traffic.OK {
				ok[a.Replica]++
				any++
			}
		}
	}
	for i, n := range ok {
		if n == 0 && any >= 10 {
			hints = append(hints, fmt.Sprintf("%s returned no success, the others returned %d: is it the same service?", host(v.file.Services[i]), any))
		}
	}
	return hints
}

// ending is how some keys ended.
type ending struct {
	status  int
	problem string
	body    string // of one of them
	n       int
}

// endings groups keys by how they ended, the largest group first.
func endings(records []traffic.Record, which func(traffic.Record) bool) (groups []ending) {
	for _, r := range records {
		if !which(r) {
			continue
		}
		e := ending{status: r.Status(), problem: r.Last().Problem}
		i := slices.IndexFunc(groups, func(g ending) bool { return g.status == e.status && g.problem == e.problem })
		if i < 0 {
			e.body = brief(r.Body)
			for _, a := range r.Attempts { // the last one may have been cut short by the end of the run
				e.body = cmp.Or(e.body, a.Error)
			}
			i, groups = len(groups), append(groups, e)
		}
		groups[i].n++
	}
	slices.SortStableFunc(groups, func(a, b ending) int { return cmp.Compare(b.n, a.n) })
	return groups
}

// ended describes how some keys ended, the most frequent endings first.
func ended(records []traffic.Record) string {
	var texts []string
	for _, e := range endings(records, func(traffic.Record) bool { return true }) {
		text := fmt.Sprintf("%d ended in %d %s", e.n, e.status, e.problem)
		if e.status == 0 {
			text = fmt.Sprintf("%d got no answer", e.n)
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return strings.Join(texts[:min(3, len(texts))], ", ")
}

// brief shortens an answer.
func brief(body []byte) string {
	const most = 120
	text := strings.Join(strings.Fields(string(body)), " ")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
