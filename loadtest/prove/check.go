// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/linear"
)

// limitFlags bound the check of a history.
type limitFlags struct {
	CheckTime time.Duration `default:"30s" help:"Time limit for the linearizability check of each partition of a history. A check that exceeds it is inconclusive."`
	CheckHeap int           `default:"4096" placeholder:"MIB" help:"Heap limit for these checks, in MiB."`
}

func (f limitFlags) limits() linear.Limits {
	return linear.Limits{Time: f.CheckTime, Heap: uint64(f.CheckHeap) << 20}
}

func (f limitFlags) validate() error {
	if f.CheckTime <= 0 || f.CheckHeap < 1 {
		return errors.New("--check-time must be above 0, --check-heap at least 1")
	}
	return nil
}

// checkCommand checks histories of earlier runs, without a server.
type checkCommand struct {
	Files []string `arg:"" type:"path" name:"file" help:"Histories, such as report/*/history.jsonl."`
}

// run checks the files one after the other. It returns the worst exit status.
func (c *checkCommand) run(ctx context.Context, out io.Writer, limits linear.Limits) (status int, err error) {
	for _, file := range c.Files {
		checked, failed := check(ctx, file, limits)
		switch {
		case failed != nil:
			status, err = couldNotRun, errors.Join(err, fmt.Errorf("%s: %w", file, failed))
			continue
		case checked.Legal < checked.Partitions || checked.Operations == 0:
			status = max(status, notAsExpected)
		}
		fmt.Fprintf(out, "%s: %d operations in %d partitions: %s, in %.1f s\n", file, checked.Operations, checked.Partitions, verdict(checked), checked.Took.Seconds())
		for _, f := range checked.Failures {
			fmt.Fprintln(out, "    "+f.Sentence())
		}
	}
	if status == notAsExpected {
		err = errors.New("a history is not linearizable, could not be decided, or has no operation that its model knows; see the lines above")
	}
	return status, err
}

func verdict(r linear.Result) string {
	switch {
	case r.Illegal > 0:
		return fmt.Sprintf("%d illegal", r.Illegal)
	case r.Undecided > 0:
		return fmt.Sprintf("%d undecided", r.Undecided)
	case r.Operations == 0:
		return "nothing to check"
	default:
		return "legal"
	}
}

// check reads and checks one file. Illegal partitions are drawn into its folder.
func check(ctx context.Context, name string, limits linear.Limits) (linear.Result, error) {
	file, err := os.Open(name)
	if err != nil {
		return linear.Result{}, err
	}
	defer file.Close()
	h, err := linear.Read(file)
	if err != nil {
		return linear.Result{}, err
	}
	for _, l := range (&environment{}).lessons() {
		if l.Name != h.Header.Flow || l.Linear == nil {
			continue
		}
		partitions, err := l.Linear(h)
		if err != nil {
			return linear.Result{}, err
		}
		checked := linear.Check(ctx, partitions, limits)
		return checked, errors.Join(ctx.Err(), judge.Draw(ctx, filepath.Dir(name), checked))
	}
	return linear.Result{}, fmt.Errorf("a history of the flow %q, for which this program has no model", h.Header.Flow)
}
