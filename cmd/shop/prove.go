package main

import (
	"context"
	"errors"
)

type proveCmd struct{}

func (c *proveCmd) Run(ctx context.Context) error { return errors.New("prove: not written yet") }
