// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	vegeta "github.com/tsenart/vegeta/v12/lib"

	"shop/cmd/shop/api"
	"shop/compose/local/stack"
	"shop/loadtest"
	bench "shop/loadtest/rows"
)

// requestTimeout is above the wait of the last of all clients at the row lock.
const requestTimeout = 30 * time.Second

// addClient makes the tables of the API, and a client.
func addClient(ctx context.Context, p place) (string, error) {
	if err := api.Migrate(ctx, p.Postgres); err != nil {
		return "", err
	}
	pool, err := pgxpool.New(ctx, p.Postgres)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	_, key, err := api.AddClient(ctx, pool, "hot", false)
	return key, err
}

// overHTTP starts replicas with a strategy, and loads them.
func overHTTP(ctx context.Context, p place, c comparison, strategy string, over time.Duration) (s bench.Sample, err error) {
	logs, err := os.MkdirTemp("", "hot")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(logs)
	program, err := program(p, strategy)
	if err != nil {
		return s, err
	}
	program.Logs, program.Spawn = logs, stack.Spawn
	replicas, err := loadtest.StartReplicas(ctx, program, c.Processes, nil)
	if err != nil {
		return s, err
	}
	defer replicas.KillAll()
	client := &http.Client{Timeout: requestTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: c.Clients}}
	defer client.CloseIdleConnections()
	if _, err := attack(ctx, client, p.Key, replicas.Bases(), c.Clients, over/4); err != nil { // connects, prepares statements
		return s, err
	}
	s, err = attack(ctx, client, p.Key, replicas.Bases(), c.Clients, over)
	replicas.Stop(ctx)
	return s, err
}

// program returns how to start shop serve, or the API alone for emptyPOST. The limits of the API are so high that
// they refuse nothing.
func program(p place, strategy string) (loadtest.Program, error) {
	self, err := os.Executable()
	if strategy == emptyPOST {
		return loadtest.Program{Path: self, Args: func(_ int, listen, _ string) []string {
			text, _ := json.Marshal(empty{p.Postgres, listen}) // strings only
			return []string{"--empty", string(text)}
		}}, err
	}
	return loadtest.Program{Path: filepath.Join(filepath.Dir(self), "shop"), Args: func(_ int, listen, metrics string) []string {
		return []string{
			"serve", "--listen", listen, "--metrics-listen", metrics, "--postgres-url", p.Postgres, "--redis-url", os.Getenv("SHOP_REDIS_URL"),
			"--lock-prefix", p.Prefix, "--strategy", strategy, "--transfer-strategy", "row", "--rate-limit", "0", "--max-keys", "0", "--request-timeout", requestTimeout.String(),
			"--max-in-flight", fmt.Sprint(inFlight), "--max-per-client", fmt.Sprint(inFlight),
		}
	}}, err
}

// attack is a closed loop: vegeta has as many workers as there are clients, and each sends its next request when it
// has the answer to the last. The workers request the replicas in turn.
func attack(ctx context.Context, client *http.Client, key string, bases []string, clients int, over time.Duration) (s bench.Sample, err error) {
	header := http.Header{"Authorization": {"Bearer " + key}, "Content-Type": {"application/json"}}
	body := []byte(`{"lines":[{"sku":"` + hot + `","quantity":1}]}`)
	var next atomic.Int64
	number := map[string]int{}
	for n, base := range bases {
		number[base+"/v1/orders"] = n
	}
	attacker := vegeta.NewAttacker(vegeta.Client(client), vegeta.Workers(uint64(clients)), vegeta.MaxWorkers(uint64(clients)))
	defer context.AfterFunc(ctx, func() { attacker.Stop() })()
	begin := time.Now()
	s.Each = make([]int, len(bases))
	for result := range attacker.Attack(func(t *vegeta.Target) error {
		t.Method, t.URL, t.Body = http.MethodPost, bases[int(next.Add(1))%len(bases)]+"/v1/orders", body
		t.Header = header.Clone()
		t.Header.Set("Idempotency-Key", uuid.NewString())
		return nil
	}, vegeta.Rate{}, over, "") {
		if result.Code != http.StatusCreated && err == nil {
			err = fmt.Errorf("POST %s: %s %s", result.URL, result.Error, result.Body)
		}
		s.Waits = append(s.Waits, result.Latency)
		s.Each[number[result.URL]]++
	}
	s.Over = time.Since(begin)
	return s, errors.Join(err, ctx.Err())
}
