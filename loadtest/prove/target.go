// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"shop/loadtest"
	"shop/loadtest/report"
	"shop/loadtest/target"
)

// proveTarget proves the service that a file describes.
func (c *app) proveTarget(ctx context.Context, progress *progress) (loadtest.Report, error) {
	path, over, err := c.described()
	if err != nil {
		return loadtest.Report{}, err
	}
	file, err := target.Read(path, over, os.Getenv)
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
	return file.Run(ctx, progress.say, progress.tick)
}

// described returns the YAML file that describes the service, and what the command line says instead of it: --target
// is that file, or the addresses of the replicas.
func (c *app) described() (file string, over target.Override, err error) {
	file = c.Target
	if strings.Contains(c.Target, "://") {
		file, over.Services = cmp.Or(c.Requests, "prove.yaml"), strings.Split(c.Target, ",")
		if _, err := os.Stat(file); err != nil {
			return "", over, fmt.Errorf("--target %s needs a file that describes the requests: --requests FILE: %w", c.Target, err)
		}
	} else if c.Requests != "" {
		return "", over, errors.New("--requests is for a --target that is an address: a file describes the requests itself")
	}
	if c.AuditSQL != "" {
		over.AuditSQL, err = filepath.Abs(c.AuditSQL)
	}
	return file, over, err
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
