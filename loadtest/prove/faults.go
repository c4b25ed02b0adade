// SPDX-License-Identifier: MIT

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"shop/loadtest"
	"shop/loadtest/report"
)

// faultsCommand prints what was injected in earlier runs, for docs/faults.md.
type faultsCommand struct {
	Files []string `arg:"" type:"path" name:"file" help:"Reports of earlier runs, such as report/prove.json."`
}

// run prints a table for each report.
func (c *faultsCommand) run(out io.Writer) (status int, err error) {
	flows := map[string]*loadtest.Flow{}
	for _, l := range (&environment{}).lessons() {
		flows[l.Name] = l.Flow
	}
	for i, file := range c.Files {
		r, err := read(file, flows)
		if err != nil {
			return couldNotRun, err
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := report.Faults(out, r); err != nil {
			return couldNotRun, err
		}
	}
	return asExpected, nil
}

// read reads a report, and gives each scenario its flow.
func read(file string, flows map[string]*loadtest.Flow) (r loadtest.Report, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s: %w", file, err)
	}
	for i := range r.Scenarios {
		s := &r.Scenarios[i]
		flow := flows[s.Flow]
		if flow == nil {
			return r, fmt.Errorf("%s: no flow %q", file, s.Flow)
		}
		s.Scenario = loadtest.Scenario{Flow: flow, Strategy: s.Strategy, Fault: s.Fault, Expect: s.Expect, Breaks: s.Breaks, Keeps: s.Keeps}
	}
	return r, nil
}
