// SPDX-License-Identifier: MIT

package main

import (
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// poolStats describe a pool of connections at one moment.
type poolStats struct {
	inUse, idle, limit int
	waited             time.Duration // by all requests for a connection so far
}

// watchPool exports the depth of a pool.
func watchPool(reg prometheus.Registerer, server string, stats func() poolStats) {
	for state, count := range map[string]func(poolStats) int{
		"in_use": func(s poolStats) int { return s.inUse },
		"idle":   func(s poolStats) int { return s.idle },
		"limit":  func(s poolStats) int { return s.limit },
	} {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "pool_connections", Help: "Connections to a server by state; limit is how many there may be.",
			ConstLabels: prometheus.Labels{"server": server, "state": state},
		}, func() float64 { return float64(count(stats())) }))
	}
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "pool_wait_seconds_total", Help: "Time that requests have waited for a connection to a server.",
		ConstLabels: prometheus.Labels{"server": server},
	}, func() float64 { return stats().waited.Seconds() }))
}

func watchPostgres(reg prometheus.Registerer, pool *pgxpool.Pool) {
	watchPool(reg, "postgres", func() poolStats {
		s := pool.Stat()
		return poolStats{int(s.AcquiredConns()), int(s.IdleConns()), int(s.MaxConns()), s.EmptyAcquireWaitTime()}
	})
}

func watchRedis(reg prometheus.Registerer, client *redis.Client) {
	watchPool(reg, "redis", func() poolStats {
		s := client.PoolStats()
		return poolStats{int(s.TotalConns) - int(s.IdleConns), int(s.IdleConns), client.Options().PoolSize, time.Duration(s.WaitDurationNs)}
	})
}

// watchMongo returns the option that counts the connections of a client: the driver has no
// statistics.
//
// It keeps the state of each connection. The driver also reports as closed what was never ready,
// such as a connection that the server refused, and may do so before it reports the return of a
// connection in use.
func watchMongo(reg prometheus.Registerer) *options.ClientOptions {
	type connection struct {
		server string
		id     int64
	}
	var (
		mu     sync.Mutex
		inUse  = map[connection]bool{} // has all that are ready
		limit  int
		waited time.Duration
	)
	watchPool(reg, "mongo", func() poolStats {
		mu.Lock()
		defer mu.Unlock()
		s := poolStats{limit: limit, waited: waited}
		for _, used := range inUse {
			if used {
				s.inUse++
			} else {
				s.idle++
			}
		}
		return s
	})
	return options.Client().SetPoolMonitor(&event.PoolMonitor{Event: func(e *event.PoolEvent) {
		mu.Lock()
		defer mu.Unlock()
		c := connection{e.Address, e.ConnectionID}
		switch e.Type {
		case event.ConnectionPoolCreated:
			limit = int(e.PoolOptions.MaxPoolSize) // of each server; the primary has nearly all
		case event.ConnectionReady:
			inUse[c] = false
		case event.ConnectionClosed:
			delete(inUse, c)
		case event.ConnectionCheckedOut:
			inUse[c] = true
			waited += e.Duration
		case event.ConnectionCheckedIn:
			if _, ready := inUse[c]; ready {
				inUse[c] = false
			}
		}
	}})
}

// watchQueue exports how many requests of a flow wait in a queue of this process.
func watchQueue(reg prometheus.Registerer, flow string, queued func() int) {
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "queue_length", Help: "Requests that wait in this process: for a batch of the strategy combined, or for their turn at a wallet.",
		ConstLabels: prometheus.Labels{"flow": flow},
	}, func() float64 { return float64(queued()) }))
}
