// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/fault/pgfault"
	transferflow "shop/loadtest/scenario/transfer"
)

// postgresKind returns the kind of the private PostgreSQL of a scenario that breaks it. "": it uses the shared server.
func postgresKind(s loadtest.Scenario) string {
	switch s.Fault {
	case loadtest.StandbyGone, loadtest.PrimaryLost, loadtest.PrimaryLostAsync:
		return postgresPair
	case loadtest.Nemesis:
		if s.Flow.Name == "wallet" {
			return ""
		}
		return "postgres"
	case transferflow.PGRestart:
		return "postgres"
	}
	return ""
}

// postgresPair is the kind of a primary with a standby.
const postgresPair = "postgres-standby"

// postgresURL returns the URL of the server on which the database of a scenario is created. A pair is a new one for
// each scenario, since its primary may be lost.
func (e *environment) postgresURL(s loadtest.Scenario) (string, error) {
	kind := postgresKind(s)
	if kind == "" {
		return e.settings.PostgresURL, nil
	}
	if kind == postgresPair {
		if err := e.retire(context.Background(), kind); err != nil {
			return "", err
		}
	}
	return e.privateURL(kind)
}

// standby is a fault of the standby of a PostgreSQL, and of its primary.
func (e *environment) standby(t *loadtest.Trial) (fault.Fault, error) {
	pair, err := e.members(postgresPair)
	of := t.Scenario.Fault
	return pgfault.Standby{
		Members: pair, URL: t.Postgres, Away: loadtest.StandbyAway, Lost: of != loadtest.StandbyGone, Async: of == loadtest.PrimaryLostAsync,
	}, err
}

// adding adds arguments to those of each replica.
func adding(args func(n int, listen, metrics string) []string, more ...string) func(n int, listen, metrics string) []string {
	return func(n int, listen, metrics string) []string { return append(args(n, listen, metrics), more...) }
}
