// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// explained are the measurements in which PostgreSQL explains the statements of the batches.
var explained = []struct {
	of      string
	clients int
}{{"product", 32}, {"product", 256}, {"account", 256}}

// autoExplain are settings of a connection. With them PostgreSQL sends the client the plan of each statement, with times.
var autoExplain = map[string]string{
	"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
	"auto_explain.log_triggers": "on", "auto_explain.log_level": "notice",
}

// plans has the statements of auto_explain, in the order in which each came first.
type plans struct {
	mu         sync.Mutex
	statements []*statement
}

// statement is a statement that ran several times. The checks of foreign keys are triggers, whose time is a part of its own.
type statement struct {
	text   string
	runs   int
	ms     float64
	checks []*foreignKey
}

type foreignKey struct {
	constraint string
	ms         float64
}

var (
	planned   = regexp.MustCompile(`(?s)^duration: ([0-9.]+) ms  plan:\nQuery Text: (.*?)\n\S`)
	triggered = regexp.MustCompile(`(?m)^Trigger for constraint (\S+): time=([0-9.]+) calls=`)
)

// add adds a message of auto_explain.
func (p *plans) add(message string) {
	m := planned.FindStringSubmatch(message)
	if m == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := entry(&p.statements, strings.Join(strings.Fields(m[2]), " "), func(s *statement) *string { return &s.text })
	s.runs++
	s.ms += number(m[1])
	for _, m := range triggered.FindAllStringSubmatch(message, -1) {
		entry(&s.checks, m[1], func(c *foreignKey) *string { return &c.constraint }).ms += number(m[2])
	}
}

// entry returns the element of a list that has a name. If there is none, it adds one.
func entry[T any](list *[]*T, name string, of func(*T) *string) *T {
	for _, e := range *list {
		if *of(e) == name {
			return e
		}
	}
	e := new(T)
	*of(e) = name
	*list = append(*list, e)
	return e
}

// number parses what a pattern has found.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}

// textMax is the width of a statement in the table.
const textMax = 60

// print writes the time of each statement, and of each check, for one batch.
func (p *plans) print(w io.Writer, batches int) (err error) {
	all, checks := 0.0, 0.0
	line := func(text string, ms float64) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%-*.*s %8.3f\n", textMax, textMax, text, ms/float64(batches))
		}
	}
	for _, s := range p.statements {
		if s.runs < batches {
			continue // not of every batch, such as the first of a connection
		}
		line(s.text, s.ms)
		all += s.ms
		for _, c := range s.checks {
			line("  of which "+c.constraint, c.ms)
			checks += c.ms
		}
	}
	line("all statements", all)
	line("foreign keys", checks)
	if err == nil {
		_, err = fmt.Fprintf(w, "foreign keys: %.0f %% of the time of all statements\n", 100*checks/all)
	}
	return err
}

// explain prints what the statements of a batch take in PostgreSQL. The measurement of each plan takes a time
// too: only parts can be compared.
func (s settings) explain(ctx context.Context, w io.Writer) error {
	for _, e := range explained {
		if err := s.explainBatch(ctx, w, e.of, e.clients); err != nil {
			return err
		}
	}
	return nil
}

func (s settings) explainBatch(ctx context.Context, w io.Writer, of string, clients int) (err error) {
	place, drop, err := prepare(ctx, of)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	seen, before := &plans{}, 0
	place.explain = seen.add
	sample, err := turn{place, "combined", clients, 0, s.interval}.run(ctx, func() (err error) {
		seen.statements = nil // those of the first batches have no plan yet that is kept
		before, err = transactions(ctx, place)
		return err
	})
	if err != nil {
		return err
	}
	after, err := transactions(ctx, place)
	if err != nil {
		return err
	}
	batches := after - before
	if _, err := fmt.Fprintf(w, "%s, %d clients: %d batches with %.0f requests each took %.1f ms each; ms of it in PostgreSQL:\n",
		of, clients, batches, float64(len(sample.Waits))/float64(batches), float64(sample.Over.Milliseconds())/float64(batches)); err != nil {
		return err
	}
	return seen.print(w, batches)
}
