package main

import (
	"context"
	"errors"
)

type auditCmd struct{}

func (c *auditCmd) Run(ctx context.Context) error { return errors.New("audit: not written yet") }
