// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"shop/compose/local/stack"
)

type upCmd struct {
	Servers []string `default:"${servers}" help:"Servers to start: ${servers}, or others by name." placeholder:"NAME,…"`
}

func (c *upCmd) Run() error {
	s, env, err := openStack(context.Background(), c.Servers, true)
	if err != nil {
		return err
	}
	printSettings(env)
	fmt.Fprintf(os.Stderr, "stack: runs until `go run ./compose/local down`; logs are in %s\n", s.Dir())
	return nil
}

// printSettings prints the settings for eval, or for another shell.
func printSettings(env []string) {
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
}

// openStack starts the servers whose address is not set, and returns the settings with
// their addresses.
func openStack(ctx context.Context, servers []string, detached bool) (*stack.Stack, []string, error) {
	start := time.Now()
	var wanted []string
	for _, name := range servers {
		variable, err := stack.Variable(name)
		if err != nil {
			return nil, nil, err
		}
		if os.Getenv(variable) != "" {
			fmt.Fprintf(os.Stderr, "stack: %s is set: %s is not started\n", variable, name)
			continue
		}
		wanted = append(wanted, name)
	}
	s, err := stack.Open(ctx, stack.Options{Servers: wanted, Detached: detached, Log: os.Stderr})
	if err != nil {
		return nil, nil, err
	}
	running, err := s.Servers(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	fmt.Fprintf(os.Stderr, "stack: %s, ready in %.1f s\n", describe(running), time.Since(start).Seconds())
	return s, settings(s, running), nil
}

func describe(servers []*stack.Server) string {
	if len(servers) == 0 {
		return "no servers"
	}
	var all []string
	for _, s := range servers {
		all = append(all, s.Name+" "+s.Addr)
	}
	return strings.Join(all, ", ")
}

// settings returns the servers' variables and SHOP_STACK. If no server was started because
// all addresses were set, an outer SHOP_STACK stays: faults must hit its servers.
func settings(s *stack.Stack, servers []*stack.Server) []string {
	env := map[string]string{}
	for _, server := range servers {
		maps.Copy(env, server.Env)
	}
	if len(servers) > 0 || os.Getenv("SHOP_STACK") == "" {
		env["SHOP_STACK"] = s.Dir()
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		lines = append(lines, name+"="+env[name])
	}
	return lines
}

type statusCmd struct{}

func (c *statusCmd) Run() error {
	dirs := stack.Dirs()
	if len(dirs) == 0 {
		fmt.Println("no running stack")
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
		fmt.Fprintln(w, dir, "is starting or stopping")
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
