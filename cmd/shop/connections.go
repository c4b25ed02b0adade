// SPDX-License-Identifier: MIT

package main

import (
	"container/list"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	connsMost    = 10000 // of the API, if the limit of open files allows more: about 200 MB
	connsMetrics = 32    // of /metrics
	filesOther   = 64    // open files beside the connections of the API and of the pools, with those of /metrics
)

// connLimits bound the open connections of a listener: all, and those of one remote address (IPv6: /64).
type connLimits struct{ all, each int }

// connections is a listener within limits. At a limit it closes the connection that has been idle for longest, of the same
// address if that one is at its limit, to make room for a new one. If none is idle, it closes the new one: a client that
// waits in the kernel's queue would not know that nothing was done.
//
// Without limits, idle connections use up the open files of the process, and then no client and no pool can connect.
type connections struct {
	net.Listener
	limits connLimits
	log    *slog.Logger
	shed   *prometheus.CounterVec // by limit

	mu    sync.Mutex
	open  map[net.Conn]*connection
	count map[netip.Prefix]int
	idle  *list.List // of *connection, the longest idle first
	warn  time.Time  // the next warning at the earliest
}

type connection struct {
	net.Conn
	from netip.Prefix
	idle *list.Element // nil: new, or at work
}

func newConnections(l net.Listener, limits connLimits, log *slog.Logger) *connections {
	return &connections{
		Listener: l, limits: limits, log: log, open: map[net.Conn]*connection{}, count: map[netip.Prefix]int{}, idle: list.New(),
		shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "http_connections_shed_total", Help: "Connections closed at a limit: the longest idle one, or the new one if none was idle.",
		}, []string{"limit"}),
	}
}

// export adds the metrics of the connections.
func (c *connections) export(reg prometheus.Registerer) {
	c.shed.WithLabelValues("all")
	c.shed.WithLabelValues("address")
	reg.MustRegister(c.shed, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "http_connections", Help: "Open connections of the API.",
	}, func() float64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return float64(len(c.open))
	}))
}

func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.admit(conn) {
			return conn, nil
		}
		_ = conn.Close()
	}
}

// admit makes room for conn, of which it closes an idle connection. It reports whether there is room.
func (c *connections) admit(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := remote(conn)
	limit := ""
	switch {
	case c.count[from] >= c.limits.each:
		limit = "address"
	case len(c.open) >= c.limits.all:
		limit = "all"
	}
	if limit != "" {
		c.shed.WithLabelValues(limit).Inc()
		if now := time.Now(); now.After(c.warn) {
			c.warn = now.Add(time.Minute)
			c.log.Warn("connections are at their limit", "limit", limit, "address", from.String(), "open", len(c.open))
		}
		oldest := c.oldest(from, limit == "address")
		if oldest == nil {
			return false
		}
		c.forget(oldest.Conn)
		_ = oldest.Conn.Close() // before the server can read a request from it
	}
	c.open[conn] = &connection{Conn: conn, from: from}
	c.count[from]++
	return true
}

// oldest returns the connection that has been idle for longest, or nil.
func (c *connections) oldest(from netip.Prefix, same bool) *connection {
	for e := c.idle.Front(); e != nil; e = e.Next() {
		if conn := e.Value.(*connection); !same || conn.from == from {
			return conn
		}
	}
	return nil
}

// state is the ConnState of the server.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.open[conn]
	if known == nil { // closed to make room
		return
	}
	switch state {
	case http.StateIdle:
		known.idle = c.idle.PushBack(known)
	case http.StateActive:
		c.wake(known)
	case http.StateClosed, http.StateHijacked:
		c.forget(conn)
	}
}

func (c *connections) wake(conn *connection) {
	if conn.idle != nil {
		c.idle.Remove(conn.idle)
		conn.idle = nil
	}
}

func (c *connections) forget(conn net.Conn) {
	known := c.open[conn]
	c.wake(known)
	delete(c.open, conn)
	if c.count[known.from]--; c.count[known.from] == 0 {
		delete(c.count, known.from)
	}
}

// remote is the address of the other end: an IPv4 address, or an IPv6 /64, which one machine may have all of.
func remote(conn net.Conn) netip.Prefix {
	at, _ := netip.ParseAddrPort(conn.RemoteAddr().String())
	addr, bits := at.Addr().Unmap().WithZone(""), 64
	if addr.Is4() {
		bits = 32
	}
	prefix, _ := addr.Prefix(bits)
	return prefix
}

// connLimits are the settings, or what the limit of open files leaves beside the pools.
func (f limitFlags) connLimits(pools int) (connLimits, error) {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return connLimits{}, err
	}
	left := int(min(uint64(files.Cur), 1<<30)) - pools - filesOther
	limits := connLimits{all: f.MaxConns, each: f.MaxConnsPerAddress}
	if limits.all == 0 {
		limits.all = min(max(left, 1), connsMost)
	}
	if limits.all > left {
		return limits, &usageError{fmt.Errorf("--max-conns %d: the limit of open files is %d, and the pools need %d: %d are left for connections; raise it (ulimit -n)",
			limits.all, files.Cur, pools+filesOther, max(left, 0))}
	}
	if limits.each == 0 {
		limits.each = (limits.all + 1) / 2
	}
	return limits, nil
}

// files is how many connections the pools of the app may have.
func (a *app) files() int {
	n := int(a.pool.Config().MaxConns + a.probe.Config().MaxConns)
	if a.client != nil {
		n += a.client.Options().PoolSize
	}
	return n + a.wallets.files()
}
