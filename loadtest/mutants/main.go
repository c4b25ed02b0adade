// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
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
	Only      []string `placeholder:"NAME" help:"Run only these mutants, as --list names them; a folder stands for all mutants in it."`
	Tenth     string   `placeholder:"DATE" help:"Run only a tenth of the mutants, a different tenth each day: a date such as 2006-01-02, or today."`
	List      bool     `help:"List the mutants and exit."`
	Build     bool     `help:"Only apply and build the mutants."`
	Unchanged bool     `help:"First run the unmodified shop in each scenario of the mutants: it must be safe."`
	Tree      string   `default:"." type:"existingdir" placeholder:"DIR" help:"The repository."`
	Prove     string   `default:"bin/prove" type:"path" placeholder:"FILE" help:"The program that loads and audits. It finds its servers in the environment: bin/local exec."`
	Out       string   `default:"report/mutants" type:"path" placeholder:"DIR" help:"Folder for prove's reports."`
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
	_, err = parser.Parse(args)
	switch {
	case helped:
		return allCaught, nil
	case err != nil:
		return couldNotRun, fmt.Errorf("%w\nsee mutants --help", err)
	}
	chosen, err := c.choose(time.Now())
	switch {
	case err != nil:
		return couldNotRun, err
	case c.List:
		list(out, chosen)
		return allCaught, nil
	}
	s, err := c.newSuite(out)
	if err != nil {
		return couldNotRun, err
	}
	defer s.close()
	return s.run(ctx, chosen)
}

// choose reads the mutants, and keeps those that the flags select.
func (c *app) choose(now time.Time) ([]mutant, error) {
	all, err := readAll(c.Tree)
	if err == nil && len(c.Only) > 0 {
		all, err = only(all, c.Only)
	}
	if err != nil || c.Tenth == "" {
		return all, err
	}
	day := now.UTC()
	if c.Tenth != "today" {
		if day, err = time.Parse(time.DateOnly, c.Tenth); err != nil {
			return nil, fmt.Errorf("--tenth: %w", err)
		}
	}
	return tenth(all, day), nil
}

func list(out io.Writer, mutants []mutant) {
	for _, m := range mutants {
		fmt.Fprintf(out, "%s\n    %s\n    %s in %s %s\n", m.Name, m.Teaches, m.Invariant, m.Scenario, strings.Join(m.Prove, " "))
	}
	fmt.Fprintf(out, "%d mutants\n", len(mutants))
}
