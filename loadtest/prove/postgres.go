// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"shop/loadtest"
)

// postgresURL returns the URL of the server on which the database of a scenario is created. A pair is a new one for
// each scenario, since its primary may be lost.
func (e *environment) postgresURL(s loadtest.Scenario) (string, error) {
	kind := e.setup(s).postgres
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
