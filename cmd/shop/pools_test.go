// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"shop/locking/servertest"
	"shop/wallet"
)

// poolMetric returns the value of the series of a pool. State is "" for the time of waiting.
func poolMetric(t *testing.T, reg *prometheus.Registry, state string) (value float64) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if state == "" && f.GetName() == "pool_wait_seconds_total" {
				value += m.GetCounter().GetValue()
			}
			for _, l := range m.Label {
				if l.GetName() == "state" && l.GetValue() == state {
					value += m.GetGauge().GetValue()
				}
			}
		}
	}
	return value
}

func wantPool(t *testing.T, reg *prometheus.Registry, inUse, idle float64) {
	t.Helper()
	if gotUse, gotIdle := poolMetric(t, reg, "in_use"), poolMetric(t, reg, "idle"); gotUse != inUse || gotIdle != idle {
		t.Errorf("%.0f in use and %.0f idle, want %.0f and %.0f", gotUse, gotIdle, inUse, idle)
	}
}

// brokenDialer refuses connections while it is broken.
type brokenDialer struct {
	net.Dialer
	broken atomic.Bool
}

func (d *brokenDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if d.broken.Load() {
		return nil, errors.New("refused")
	}
	return d.Dialer.DialContext(ctx, network, address)
}

// The driver reports a refused connection as closed, although it never reported it as ready.
func TestWatchMongo_ARefusedConnectionWasNeverOpen(t *testing.T) {
	reg, dialer := prometheus.NewRegistry(), &brokenDialer{}
	base, err := wallet.ClientOptions(servertest.Env(t, "SHOP_MONGO_URL"))
	if err != nil {
		t.Fatal(err)
	}
	sent, answer := make(chan struct{}), make(chan struct{})
	hold := &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.CommandName == "ping" { // its connection stays in use
			close(sent)
			<-answer
		}
	}}
	watched, closed := watchMongo(reg), make(chan struct{}, 1)
	count := watched.PoolMonitor.Event
	watched.PoolMonitor.Event = func(e *event.PoolEvent) {
		count(e)
		if e.Type == event.ConnectionClosed { // after the request has its error
			select {
			case closed <- struct{}{}:
			default:
			}
		}
	}
	client, err := mongo.Connect(base, watched, options.Client().SetDialer(dialer).SetMonitor(hold))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	held := make(chan error, 1)
	go func() { held <- client.Ping(t.Context(), nil) }()
	<-sent
	wantPool(t, reg, 1, 0)
	dialer.broken.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := client.ListDatabaseNames(ctx, struct{}{}); err == nil {
		t.Error("a second connection was not refused")
	}
	select {
	case <-closed:
	case <-ctx.Done():
		t.Error("the driver closed no connection")
	}
	wantPool(t, reg, 1, 0)
	close(answer)
	if err := <-held; err != nil { // its connection works on
		t.Error(err)
	}
	if poolMetric(t, reg, "idle") < 0 || poolMetric(t, reg, "limit") != 100 || poolMetric(t, reg, "") <= 0 {
		t.Errorf("%.0f idle of %.0f after a wait of %g s", poolMetric(t, reg, "idle"), poolMetric(t, reg, "limit"), poolMetric(t, reg, ""))
	}
}

// Of two requests the second waits for the connection of the first.
func TestWatchPool_CountsConnectionsAndTheTimeOfWaiters(t *testing.T) {
	for name, open := range map[string]func(*testing.T, prometheus.Registerer) (take func() (release func(), err error)){
		"postgres": watchedPostgres, "redis": watchedRedis,
	} {
		t.Run(name, func(t *testing.T) {
			reg := prometheus.NewRegistry()
			take := open(t, reg)
			release, err := take()
			if err != nil {
				t.Fatal(err)
			}
			wantPool(t, reg, 1, 0)
			const wait = 50 * time.Millisecond
			time.AfterFunc(wait, release)
			if release, err = take(); err != nil {
				t.Fatal(err)
			}
			release()
			wantPool(t, reg, 0, 1)
			if limit, waited := poolMetric(t, reg, "limit"), poolMetric(t, reg, ""); limit != 1 || waited < wait.Seconds()/2 {
				t.Errorf("the limit is %.0f, and requests have waited for %g s", limit, waited)
			}
		})
	}
}

func watchedPostgres(t *testing.T, reg prometheus.Registerer) func() (func(), error) {
	config, err := pgxpool.ParseConfig(servertest.Env(t, "SHOP_POSTGRES_URL"))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	watchPostgres(reg, pool)
	return func() (func(), error) {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			return nil, err
		}
		return conn.Release, nil
	}
}

func watchedRedis(t *testing.T, reg prometheus.Registerer) func() (func(), error) {
	o, err := redis.ParseURL(servertest.Env(t, "SHOP_REDIS_URL"))
	if err != nil {
		t.Fatal(err)
	}
	o.PoolSize = 1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	watchRedis(reg, client)
	return func() (func(), error) {
		conn := client.Conn()
		return func() { _ = conn.Close() }, conn.Ping(t.Context()).Err()
	}
}
