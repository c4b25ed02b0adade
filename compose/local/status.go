package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"shop/compose/local/stack"
)

type statusCmd struct{}

func (c *statusCmd) Run() error {
	dirs := stack.Dirs()
	if len(dirs) == 0 {
		fmt.Println("no stack runs")
	}
	for _, dir := range dirs {
		printStatus(os.Stdout, dir)
	}
	return nil
}

func printStatus(w io.Writer, dir string) {
	var servers []*stack.Server
	s, err := stack.Attach(dir)
	if err == nil {
		servers, err = s.Servers(context.Background())
	}
	if err != nil {
		fmt.Fprintln(w, dir, "is starting or ending")
		return
	}
	fmt.Fprintln(w, dir)
	for _, server := range servers {
		fmt.Fprintf(w, "  %-20s %-21s pid %-8d %s\n", server.Name, server.Addr, server.PID, server.State)
	}
}

type downCmd struct{}

func (c *downCmd) Run() error {
	stack.Sweep()
	dirs := slices.DeleteFunc(stack.Dirs(), func(dir string) bool { return !stack.Detached(dir) })
	if dir := os.Getenv("SHOP_STACK"); dir != "" {
		dirs = []string{dir}
	}
	var errs []error
	for _, dir := range dirs {
		s, err := stack.Attach(dir)
		if err == nil {
			err = s.End()
		}
		if errs = append(errs, err); err == nil {
			fmt.Println("stopped", dir)
		}
	}
	return errors.Join(errs...)
}
