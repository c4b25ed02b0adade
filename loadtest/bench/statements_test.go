// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
)

// BenchmarkStatements reports which part of the time of a batch its statements take in PostgreSQL, and which part of their
// time the checks of foreign keys take. The measurement of each plan takes a time too: only parts can be compared.
func BenchmarkStatements(b *testing.B) {
	for _, of := range []struct {
		flow    string
		clients int
	}{{"product", 32}, {"product", 256}, {"account", 256}} {
		b.Run(fmt.Sprintf("flow=%s/clients=%d", of.flow, of.clients), func(b *testing.B) {
			p := preparePostgres(b)
			var seen plans
			p.explain = seen.add
			t := turn{of.flow, p, "combined", of.clients, 0, interval()}
			l, batches := t.counted(b, func() { seen.statements, seen.checks = 0, 0 })
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(l.Over.Milliseconds())/float64(batches), "batch-ms")
			b.ReportMetric(seen.statements/float64(l.Over.Milliseconds()), "statements/batch")
			b.ReportMetric(seen.checks/seen.statements, "checks/statements")
			mustHold(b, of.flow, p)
		})
	}
}

// autoExplain are settings of a connection. With them PostgreSQL sends the client the plan of each statement, with times.
var autoExplain = map[string]string{
	"session_preload_libraries": "auto_explain", "auto_explain.log_min_duration": "0", "auto_explain.log_analyze": "on",
	"auto_explain.log_triggers": "on", "auto_explain.log_level": "notice",
}

// plans adds the milliseconds of the statements that were explained, and of the checks of foreign keys in them.
type plans struct {
	mu                 sync.Mutex
	statements, checks float64
}

var (
	planned   = regexp.MustCompile(`^duration: ([0-9.]+) ms  plan:\n`)
	triggered = regexp.MustCompile(`(?m)^Trigger for constraint \S+: time=([0-9.]+) calls=`)
)

// add adds a message of auto_explain.
func (p *plans) add(message string) {
	m := planned.FindStringSubmatch(message)
	if m == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.statements += number(m[1])
	for _, m := range triggered.FindAllStringSubmatch(message, -1) {
		p.checks += number(m[1])
	}
}

// number parses what a pattern has found.
func number(text string) float64 {
	n, _ := strconv.ParseFloat(text, 64)
	return n
}
