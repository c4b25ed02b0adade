package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"shop/compose/local/stack"
)

type needCmd struct {
	Tool     string   `arg:"" help:"A program that must be on PATH."`
	Packages []string `arg:"" help:"The packages that bring it."`
}

// Run installs the packages if the tool is not there.
func (c *needCmd) Run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return stack.Need(ctx, c.Tool, c.Packages, os.Stderr)
}
