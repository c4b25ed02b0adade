// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"shop/compose/local/stack"
	"shop/loadtest"
	"shop/loadtest/fault"
)

// server returns the private server of a kind. It starts the server on the first call.
func (e *environment) server(kind string) (*stack.Server, error) {
	if s := e.private[kind]; s != nil {
		return s, nil
	}
	if e.stack == nil {
		return nil, errNoStack
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	s, err := e.stack.Private(ctx, kind)
	if err == nil {
		e.private[kind] = s
	}
	return s, err
}

// Members returns the members of the private cluster of a kind, which share their settings. It starts the cluster on
// the first call.
func (e *environment) Members(kind string) (members []fault.Member, err error) {
	first, err := e.server(kind)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	all, err := e.stack.Servers(ctx)
	for _, s := range all {
		if maps.Equal(s.Env, first.Env) {
			members = append(members, fault.Member{Addr: s.Addr, Dir: s.Dir, Server: s})
		}
	}
	return members, err
}

// retire kills the private servers of a kind; the next scenario gets new ones.
func (e *environment) retire(ctx context.Context, kind string) error {
	if e.private[kind] == nil {
		return nil
	}
	members, err := e.Members(kind)
	if err != nil {
		err = errors.Join(err, e.private[kind].Kill(ctx))
	}
	for _, m := range members {
		err = errors.Join(err, m.Server.Kill(ctx))
	}
	delete(e.private, kind)
	return err
}

// renew retires the private servers of a scenario.
func (e *environment) renew(s loadtest.Scenario) {
	ctx, cancel := context.WithTimeout(context.Background(), serverWait)
	defer cancel()
	for _, kind := range s.Setup().Private() {
		_ = e.retire(ctx, kind) // they may be gone
	}
}

// privateURL returns the address of a private server.
func (e *environment) privateURL(kind string) (string, error) {
	server, err := e.server(kind)
	if err != nil {
		return "", err
	}
	variable, err := stack.Variable(kind)
	return server.Env[variable], err
}

// proxied returns the database URL of each replica: through a proxy of its own, where a fault needs one. It
// closes the proxies of the previous scenario.
func proxied[P interface{ URL() string }](e *environment, s loadtest.Scenario, databaseURL string, proxies *[]P, open func(string) (P, error)) ([]string, error) {
	e.closeProxies()
	if !s.Setup().Proxied {
		return slices.Repeat([]string{databaseURL}, e.settings.Replicas), nil
	}
	var urls []string
	for range e.settings.Replicas {
		p, err := open(databaseURL)
		if err != nil {
			return nil, err
		}
		*proxies, urls = append(*proxies, p), append(urls, p.URL())
	}
	return urls, nil
}

var errNoStack = errors.New("no local stack: SHOP_STACK is not set, and faults of servers need servers that may be killed; " + getServers)

// serverWait bounds the start of a server.
const serverWait = 30 * time.Second

func (e *environment) attach(dir string) (err error) {
	if dir == "" {
		return nil
	}
	if e.stack, err = stack.Attach(dir); err != nil {
		return fmt.Errorf("%w; %s", err, getServers)
	}
	return nil
}

// postgresURL returns the URL of the server on which the database of a scenario is created. A pair is a new one for
// each scenario, since its primary may be lost.
func (e *environment) postgresURL(s loadtest.Scenario) (string, error) {
	kind := s.Setup().Postgres
	if kind == "" {
		return e.settings.PostgresURL, nil
	}
	if kind == loadtest.PostgresPair {
		if err := e.retire(context.Background(), kind); err != nil {
			return "", err
		}
	}
	return e.privateURL(kind)
}
