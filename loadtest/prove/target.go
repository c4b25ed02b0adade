package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"shop/loadtest"
	"shop/loadtest/report"
	"shop/loadtest/target"
)

// proveTarget proves the service that a file describes.
func (c *app) proveTarget(ctx context.Context, progress *progress) (loadtest.Report, error) {
	file, err := target.Read(c.Target, os.Getenv)
	if err != nil {
		return loadtest.Report{}, err
	}
	file.Rate, file.Duration, file.Seed = cmp.Or(c.Rate, file.Rate), cmp.Or(c.Duration, file.Duration), cmp.Or(c.Seed, file.Seed)
	c.PostgresURL = file.Database                     // for its version in the report
	if err := os.MkdirAll(c.Out, 0o755); err != nil { // before the first request
		return loadtest.Report{}, err
	}
	if err := os.RemoveAll(filepath.Join(c.Out, file.Folder())); err != nil { // of an earlier run
		return loadtest.Report{}, err
	}
	return file.Run(ctx, target.Log{Say: progress.say, Tick: progress.tick})
}

// forCI writes the files for CI systems: JUnit XML, and the summary of a step of GitHub Actions.
func (c *app) forCI(r loadtest.Report) error {
	return errors.Join(
		writeTo(c.JUnit, os.O_TRUNC, func(w io.Writer) error { return report.JUnit(w, r) }),
		writeTo(os.Getenv("GITHUB_STEP_SUMMARY"), os.O_APPEND, func(w io.Writer) error { return report.Summary(w, r) }),
	)
}

// writeTo opens a file and writes to it. It does nothing without a path.
func writeTo(path string, how int, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|how, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
