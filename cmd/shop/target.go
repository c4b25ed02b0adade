package main

import (
	"context"
	"errors"

	"shop/loadtest"
)

type targetFlags struct {
	Target []string `placeholder:"URL" help:"x"`
}

func (f *targetFlags) validate() error { return nil }

func (c *proveCmd) proveTarget(ctx context.Context, tell *teller) (loadtest.Report, error) {
	return loadtest.Report{}, errors.New("later")
}
