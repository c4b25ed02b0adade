// SPDX-License-Identifier: MIT

package loadtest

import (
	"fmt"
	"strconv"
	"strings"
)

// Headline is one sentence on what was tried and what was found.
func (r Report) Headline() string {
	if off := r.CalledOff(); off != "" {
		return "This run was " + off + "."
	}
	what := []string{counted(len(r.Scenarios), "scenario"), counted(r.Operations(), "operation")}
	if !r.Foreign() {
		what = append(what, counted(r.Faults(), "fault"))
	}
	var found []string
	for _, text := range []string{r.expected(Safe).safe(), r.expected(Violated).caught(), r.again()} {
		if text != "" {
			found = append(found, text)
		}
	}
	return strings.Join(what, ", ") + ": " + strings.Join(found, ", ") + "."
}

// again describes how many scenarios were run twice; "" if none was.
func (r Report) again() string {
	n := 0
	for _, s := range r.Scenarios {
		if len(s.Again) > 0 {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d run a second time, since the first run showed nothing", n)
}

// Operations counts the keys of writes, and the reads that were answered.
func (r Report) Operations() (n int) {
	for _, s := range r.Scenarios {
		n += s.Requests + s.Reads
	}
	return n
}

// Faults counts how often a fault hit something.
func (r Report) Faults() (n int) {
	for _, s := range r.Scenarios {
		for _, e := range s.Events {
			n += int(e.Hits)
		}
	}
	return n
}

// tried counts the scenarios with one expected verdict.
type tried struct{ all, met, violated, inconclusive int }

func (r Report) expected(verdict Verdict) (o tried) {
	for _, s := range r.Scenarios {
		if s.Expect != verdict {
			continue
		}
		o.all++
		if s.AsExpected {
			o.met++
		}
		switch s.Verdict {
		case Violated:
			o.violated++
		case Inconclusive:
			o.inconclusive++
		}
	}
	return o
}

// safe describes what was found in the scenarios that must be safe; "" if there are none.
func (o tried) safe() string {
	var found []string
	if o.violated > 0 {
		found = append(found, fmt.Sprintf("violations in %d of %s", o.violated, counted(o.all, "safe one")))
	}
	if o.inconclusive > 0 {
		found = append(found, fmt.Sprintf("%d of %s inconclusive", o.inconclusive, counted(o.all, "safe one")))
	}
	if len(found) == 0 && o.all > 0 {
		found = append(found, "no violation in "+counted(o.all, "safe one"))
	}
	return strings.Join(found, ", ")
}

// caught describes how many of the controls were caught; "" if there are none.
func (o tried) caught() string {
	switch {
	case o.all == 0:
		return ""
	case o.met < o.all:
		return fmt.Sprintf("only %d of %s caught", o.met, counted(o.all, "known-bad one"))
	case o.all == 1:
		return "the known-bad one caught"
	case o.all == 2:
		return "both known-bad ones caught"
	}
	return "all " + counted(o.all, "known-bad one") + " caught"
}

// counted formats a number of things: 61,000 operations, 1 fault.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return Grouped(int64(n)) + " " + thing
}

// Grouped formats a number with a comma between thousands.
func Grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
