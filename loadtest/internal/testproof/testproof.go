// SPDX-License-Identifier: MIT

// Package testproof has a proof of replicas that refuse everything: the cheapest way never to break an
// invariant, which must not pass. The replicas are the test binary: see testbed.Main.
package testproof

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"shop/loadtest"
	"shop/loadtest/fault"
	"shop/loadtest/internal/testbed"
	"shop/loadtest/site"
	"shop/loadtest/traffic"
)

// New returns a proof of one scenario without a fault, whose replicas refuse everything. prepare fills the
// stores of a trial for these clients.
func New(t *testing.T, scenario loadtest.Scenario, prepare func(context.Context, *loadtest.Trial, []loadtest.Credentials) error) *loadtest.Proof {
	t.Helper()
	program := Program(t, "good")
	return &loadtest.Proof{
		Scenarios: []loadtest.Scenario{scenario},
		Load:      traffic.Load{Rate: 100, Duration: time.Second, Seed: 1, Replicas: 2},
		LockTTL:   map[string]time.Duration{scenario.Flow.Name: time.Second}, Grace: time.Second,
		Server: func(loadtest.Scenario) (string, error) { return testbed.Env(t, "SHOP_POSTGRES_URL"), nil },
		Prepare: func(ctx context.Context, trial *loadtest.Trial) (clients []loadtest.Credentials, err error) {
			for range trial.Plan.Clients {
				clients = append(clients, loadtest.Credentials{ID: uuid.New(), Key: "key"})
			}
			return clients, prepare(ctx, trial, clients)
		},
		Program: func(*loadtest.Trial) (site.Program, error) { return program, nil },
		Fault:   func(*loadtest.Trial) (fault.Fault, error) { return fault.None{}, nil },
		Renew:   func(loadtest.Scenario) {},
		Say:     t.Logf, Tick: func(string) {},
	}
}

// Program returns the test binary as a replica.
func Program(t *testing.T, mode string) site.Program {
	t.Helper()
	t.Setenv("SHOP_STRATEGY", "naive") // must not reach a replica
	return site.Program{Path: os.Args[0], Args: testbed.ReplicaArgs(mode), Spawn: (*exec.Cmd).Start, Logs: t.TempDir()}
}

// Run runs a proof of one scenario, and returns the report and the result.
func Run(t *testing.T, proof *loadtest.Proof) (loadtest.Report, loadtest.Result) {
	t.Helper()
	report, err := proof.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report, report.Scenarios[0]
}

// AwaitLook waits until a sample of the database has ended that began after the call.
func AwaitLook(ctx context.Context, trial *loadtest.Trial) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for n := trial.Looks(); trial.Looks() < n+2 && fault.Wait(ctx, time.Millisecond); {
	}
}

// WantOne checks that there is one finding, which begins with a text; with an empty text, that there is
// none.
func WantOne(t *testing.T, name string, found []string, begins string) {
	t.Helper()
	if (begins == "") != (len(found) == 0) || len(found) > 0 && (len(found) > 1 || !strings.HasPrefix(found[0], begins)) {
		t.Errorf("%s: %q, want %q", name, found, begins)
	}
}
