package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"shop/compose/local/stack"
)

type upCmd struct {
	Servers []string `default:"${servers}" help:"Which servers to start: ${servers}, or others by name." placeholder:"NAME,…"`
}

func (c *upCmd) Run() error {
	s, env, err := openStack(context.Background(), c.Servers, true)
	if err != nil {
		return err
	}
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		fmt.Printf("export %s='%s'\n", name, value)
	}
	fmt.Fprintf(os.Stderr, "stack: runs until `go run ./compose/local down`; logs are in %s\n", s.Dir())
	return nil
}

// openStack starts those servers whose address is not set yet, and gives the
// settings that lead to all of them.
func openStack(ctx context.Context, servers []string, detached bool) (*stack.Stack, []string, error) {
	start := time.Now()
	var wanted []string
	for _, name := range servers {
		variable, err := stack.Variable(name)
		if err != nil {
			return nil, nil, err
		}
		if os.Getenv(variable) != "" {
			fmt.Fprintf(os.Stderr, "stack: %s is set: %s is not started here\n", variable, name)
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
		return "no server of its own"
	}
	var all []string
	for _, s := range servers {
		all = append(all, s.Name+" "+s.Addr)
	}
	return strings.Join(all, ", ")
}

// settings are the servers' variables, and SHOP_STACK. When nothing was started
// because all was set, the stack that those addresses came from stays the one
// to break.
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
