// SPDX-License-Identifier: MIT

package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"shop/cmd/shop/api"
	"shop/inventory"
	"shop/locking/locktest"
)

// answering makes /readyz report degraded and err.
func answering(degraded api.Degraded, err error) option {
	return func(c *api.Config, _ *inventory.Config) {
		c.Ready = func(context.Context) (api.Degraded, error) { return degraded, err }
	}
}

func TestReady_ReportsEachServer(t *testing.T) {
	locktest.Slow(t, "real time-outs")
	t.Parallel()
	for _, c := range []struct {
		degraded api.Degraded
		err      error
		status   int
		text     string
	}{
		{api.Degraded{}, nil, 200, `{"status":"ok","postgres":"ok","locks":"ok","transfers":"ok","wallets":"ok"}`},
		{api.Degraded{Locks: true}, nil, 200, `{"status":"degraded","postgres":"ok","locks":"unreachable","transfers":"ok","wallets":"ok"}`},
		{api.Degraded{Transfers: true}, nil, 200, `{"status":"degraded","postgres":"ok","locks":"ok","transfers":"unreachable","wallets":"ok"}`},
		{api.Degraded{Wallets: true}, nil, 200, `{"status":"degraded","postgres":"ok","locks":"ok","transfers":"ok","wallets":"unreachable"}`},
		{api.Degraded{}, errors.New("gone"), 503, `{"status":"unavailable","postgres":"unreachable","locks":"ok","transfers":"ok","wallets":"ok"}`},
		{api.Degraded{Locks: true, Transfers: true, Wallets: true}, errors.New("gone"), 503, `{"status":"unavailable","postgres":"unreachable","locks":"unreachable","transfers":"unreachable","wallets":"unreachable"}`},
	} {
		s := open(t, answering(c.degraded, c.err))
		s.wantReady(c.status, c.text)
		s.do("GET", "/livez", "").want(t, 200, "")
		s.server.Drain()
		s.wantReady(503, `{"status":"draining"}`)
		s.do("GET", "/livez", "").want(t, 200, "")
		s.buy("k", "coffee", "1").want(t, 201, "") // requests are still served
	}
}

func (s *shop) wantReady(status int, text string) {
	s.t.Helper()
	if a := s.do("GET", "/readyz", ""); a.status != status || strings.TrimSpace(string(a.body)) != text {
		s.t.Errorf("%d %s; want %d %s", a.status, a.body, status, text)
	}
}

func TestReady_NeedsTheTables(t *testing.T) {
	t.Parallel()
	s := open(t)
	if err := api.Ping(t.Context(), s.pool); err != nil {
		t.Error(err)
	}
	if _, err := s.pool.Exec(t.Context(), `DROP TABLE clients`); err != nil {
		t.Fatal(err)
	}
	s.wantReady(503, `{"status":"unavailable","postgres":"unreachable","locks":"ok","transfers":"ok","wallets":"ok"}`)
}

func TestReady_ProbesAtTheSameMomentShareOneCheck(t *testing.T) {
	t.Parallel()
	asked, in, out := 0, make(chan struct{}, 100), make(chan struct{})
	s := open(t, func(c *api.Config, _ *inventory.Config) {
		c.Ready = func(context.Context) (api.Degraded, error) {
			asked++ // under the lock of readiness; -race would report otherwise
			in <- struct{}{}
			<-out
			return api.Degraded{}, nil
		}
	})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { s.do("GET", "/readyz", "") })
	}
	<-in
	locktest.Eventually(t, "all have come", func() bool { return s.inFlight() == 20 })
	close(out)
	wg.Wait()
	if asked > 5 { // more than one only if the machine stalled for longer than a result is kept
		t.Errorf("asked %d times", asked)
	}
}

// An operator who reads the log must see which store went and when it came back, without a line for each probe.
func TestReady_LogsAStoreOnceWhenItGoesAndOnceWhenItIsBack(t *testing.T) {
	t.Parallel()
	var degraded api.Degraded
	var gone error
	s := open(t, func(c *api.Config, _ *inventory.Config) {
		c.Ready = func(context.Context) (api.Degraded, error) { return degraded, gone }
	})
	s.server.CheckEachProbe()
	probes := func() {
		for range 3 {
			s.do("GET", "/readyz", "")
		}
	}
	probes()
	degraded, gone = api.Degraded{Locks: true, Transfers: true, Wallets: true}, errors.New("connection refused")
	probes()
	degraded, gone = api.Degraded{}, nil
	probes()
	var told []string
	for line := range strings.Lines(s.log.String()) {
		var entry struct{ Msg, Store, Error string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err, line)
		}
		if entry.Store != "" {
			told = append(told, strings.TrimSpace(entry.Msg+": "+entry.Store+" "+entry.Error))
		}
	}
	want := []string{
		"store unreachable: postgres connection refused", "store unreachable: redis", "store unreachable: etcd", "store unreachable: mongo",
		"store reachable again: postgres", "store reachable again: redis", "store reachable again: etcd", "store reachable again: mongo",
	}
	if !slices.Equal(told, want) {
		t.Errorf("logged %q, want %q", told, want)
	}
}
