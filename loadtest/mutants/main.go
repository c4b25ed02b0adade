// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

const description = `Runs prove on services with one planted mistake each, and fails unless each mistake is caught by the
invariant that its mutant names.

Exit status: 0 all are caught, 1 at least one is not, 2 wrong usage or could not run.`

// app holds the settings of a suite; --help is their documentation.
type app struct {
	Only      []string  `placeholder:"NAME" help:"Run only these mutants, as --list names them; a folder stands for all mutants in it."`
	Tenth     time.Time `placeholder:"DATE" format:"2006-01-02" help:"Run only a tenth of the mutants, a different tenth each day: a date such as 2006-01-02."`
	List      bool      `help:"List the mutants and exit."`
	Unchanged bool      `help:"First run the unmodified shop in each scenario of the mutants: it must be safe."`
	Tree      string    `default:"." type:"existingdir" placeholder:"DIR" help:"The repository."`
	Prove     string    `default:"bin/prove" type:"path" placeholder:"FILE" help:"The program that loads and audits. It finds its servers in the environment: bin/local exec."`
	Out       string    `default:"report/mutants" type:"path" placeholder:"DIR" help:"Folder for prove's reports."`
}

// The exit statuses.
const (
	allCaught = iota
	notCaught
	couldNotRun
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the process
	status, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
	}
	os.Exit(status)
}

// run is the whole program except for the process, for the tests.
func run(ctx context.Context, args []string, out, log io.Writer) (status int, err error) {
	var (
		c      app
		helped bool
	)
	parser, err := kong.New(&c, kong.Name("mutants"), kong.Description(description),
		kong.Writers(out, log), kong.Exit(func(int) { helped = true }))
	if err != nil {
		return couldNotRun, err
	}
	if _, err = parser.Parse(args); helped {
		return allCaught, nil
	}
	if err != nil {
		return couldNotRun, fmt.Errorf("%w\nsee mutants --help", err)
	}
	mutants, err := c.choose()
	switch {
	case err != nil:
		return couldNotRun, err
	case c.List:
		for _, m := range mutants {
			fmt.Fprintf(out, "%s\n    %s\n    %s in %s %s\n", m.Name, m.Teaches, m.Invariant, m.Scenario, strings.Join(m.Prove, " "))
		}
		fmt.Fprintf(out, "%d mutants\n", len(mutants))
		return allCaught, nil
	}
	return c.try(ctx, mutants, out)
}

// choose reads the mutants, and keeps those that the flags select.
func (c *app) choose() ([]mutant, error) {
	all, err := readAll(c.Tree)
	if err == nil && len(c.Only) > 0 {
		all, err = only(all, c.Only)
	}
	if !c.Tenth.IsZero() {
		all = tenth(all, c.Tenth)
	}
	return all, err
}

// only keeps the named mutants; the name of a folder stands for all mutants in it.
func only(all []mutant, names []string) ([]mutant, error) {
	var chosen []mutant
	for _, name := range names {
		n := len(chosen)
		for _, m := range all {
			if m.Name == name || strings.HasPrefix(m.Name, strings.TrimSuffix(name, "/")+"/") {
				chosen = append(chosen, m)
			}
		}
		if len(chosen) == n {
			return nil, fmt.Errorf("no mutant %s; --list prints the names", name)
		}
	}
	return chosen, nil
}

// tenth returns every tenth mutant, beginning with another one each day: ten days cover all mutants.
func tenth(all []mutant, day time.Time) (chosen []mutant) {
	date := day.Unix() / int64((24 * time.Hour).Seconds())
	for i := int(date % 10); i < len(all); i += 10 {
		chosen = append(chosen, all[i])
	}
	return chosen
}

// scenarios returns the scenarios that mutants name, each with the flags of the first one.
func scenarios(mutants []mutant) (distinct []mutant) {
	for _, m := range mutants {
		if !slices.ContainsFunc(distinct, func(d mutant) bool { return d.Scenario == m.Scenario }) {
			distinct = append(distinct, mutant{Name: m.Scenario, Scenario: m.Scenario, Prove: m.Prove})
		}
	}
	return distinct
}

// try tries the mutants in sequence, since two loads at once would disturb each other, and prints a line for each.
func (c *app) try(ctx context.Context, mutants []mutant, out io.Writer) (status int, err error) {
	if _, err := os.Stat(c.Prove); err != nil {
		return couldNotRun, fmt.Errorf("%w; make mutants builds it, and starts the servers that it needs", err)
	}
	if c.Unchanged {
		mutants = append(scenarios(mutants), mutants...)
	}
	if len(mutants) == 0 {
		return couldNotRun, errors.New("no mutant to try")
	}
	begun, good := time.Now(), 0
	for _, m := range mutants {
		start := time.Now()
		j := c.outcome(ctx, m)
		if ctx.Err() != nil { // an interrupted run says nothing about the mutant
			return couldNotRun, errors.New("interrupted")
		}
		if j.word.good() {
			good++
		}
		fmt.Fprintf(out, "%-8s  %-40s  %5.1f s  %s\n", j.word, m.Name, time.Since(start).Seconds(), j.text)
	}
	fmt.Fprintf(out, "%d of %d as expected, in %.0f s\n", good, len(mutants), time.Since(begun).Seconds())
	if bad := len(mutants) - good; bad > 0 {
		return notCaught, fmt.Errorf("%d of %d not as expected; prove's reports are in %s", bad, len(mutants), c.Out)
	}
	return allCaught, nil
}
