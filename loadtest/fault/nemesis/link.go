// SPDX-License-Identifier: MIT

package nemesis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"

	"shop/loadtest/fault"
)

// Link connects one replica to one store: a proxy for each address of the store.
//
//	replica ──► Link ──► store
//	        ◄──      ◄──
type Link struct {
	replica int // from 1
	store   string
	proxies []*toxiproxy.Proxy
}

// NewLink opens a link from replica n, from 0, to the addresses of a store.
func NewLink(n int, store string, addrs ...string) (*Link, error) {
	l := &Link{replica: n + 1, store: store}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	for _, addr := range addrs {
		p := toxiproxy.NewProxy(server, l.String(), "127.0.0.1:0", addr)
		if err := p.Start(); err != nil {
			l.Close()
			return nil, fmt.Errorf("%v: %w", l, err)
		}
		l.proxies = append(l.proxies, p)
	}
	return l, nil
}

// String names its ends.
func (l *Link) String() string { return fmt.Sprintf("replica %d and %s", l.replica, l.store) }

// Replica returns the number of the replica, from 0.
func (l *Link) Replica() int { return l.replica - 1 }

// Store returns the name of the store.
func (l *Link) Store() string { return l.store }

// Addrs returns the addresses at which the replica finds the store, in the store's order.
func (l *Link) Addrs() (addrs []string) {
	for _, p := range l.proxies {
		addrs = append(addrs, p.Listen)
	}
	return addrs
}

// Close closes all connections, and accepts no new ones.
func (l *Link) Close() {
	for _, p := range l.proxies {
		p.Stop()
	}
}

// Direction is the direction in which a cut link loses data.
type Direction string

// The directions.
const (
	Requests Direction = "upstream"
	Answers  Direction = "downstream"
)

// toxic is a toxic of toxiproxy, for one direction of a link.
type toxic struct {
	kind       string
	direction  Direction
	attributes any
}

// do adds toxics to all proxies, in this order. undo removes them, once. Meters come first, since a
// toxic after them may not pass on the end of a connection.
func (l *Link) do(list ...toxic) (added []toxics.Toxic, undo func() error, err error) {
	var removals []func() error
	undo = func() (err error) {
		for _, remove := range slices.Backward(removals) {
			err = errors.Join(err, remove())
		}
		removals = nil
		return err
	}
	for _, p := range l.proxies {
		for _, t := range list {
			name := t.kind + "_" + string(t.direction)
			text, err := json.Marshal(map[string]any{"name": name, "type": t.kind, "stream": t.direction, "attributes": t.attributes})
			if err != nil {
				return nil, nil, errors.Join(err, undo())
			}
			wrapper, err := p.Toxics.AddToxicJson(bytes.NewReader(text))
			if err != nil {
				return nil, nil, errors.Join(fmt.Errorf("%v: %s: %w", l, t.kind, err), undo())
			}
			added = append(added, wrapper.Toxic)
			removals = append(removals, func() error { return p.Toxics.RemoveToxic(context.Background(), name) })
		}
	}
	return added, undo, nil
}

// hits sums what toxics have counted.
func hits(added []toxics.Toxic, ofCloses bool) (n int64) {
	for _, t := range added {
		switch counted := t.(type) {
		case *silence:
			n += counted.dropped.Load()
		case *meter:
			if ofCloses {
				n += counted.closed.Load()
			} else {
				n += counted.passed.Load()
			}
		}
	}
	return n
}

// Cut makes a link lose all data in the given directions; none given: in both.
func Cut(l *Link, lost ...Direction) Part {
	kind := "requests and answers lost"
	switch {
	case len(lost) == 0:
		lost = []Direction{Requests, Answers}
	case lost[0] == Requests:
		kind = "requests lost"
	default:
		kind = "answers lost"
	}
	part := l.fault(kind, "lost")
	for _, d := range lost {
		part.toxics = append(part.toxics, toxic{kind: silenceType, direction: d, attributes: struct{}{}})
	}
	return part.part()
}

// Slowed delays all data on a link by latency ± jitter, in each direction.
func Slowed(l *Link, latency, jitter time.Duration) Part {
	part := l.fault(fmt.Sprintf("%v ± %v", latency, jitter), "delayed")
	for _, d := range []Direction{Requests, Answers} {
		part.toxics = append(part.toxics,
			toxic{kind: meterType, direction: d, attributes: struct{}{}},
			toxic{kind: "latency", direction: d, attributes: toxics.LatencyToxic{Latency: latency.Milliseconds(), Jitter: jitter.Milliseconds()}})
	}
	return part.part()
}

// linkFault is a fault of a link.
type linkFault struct {
	*Link
	kind     string
	evidence string
	toxics   []toxic
}

func (l *Link) fault(kind, evidence string) linkFault {
	return linkFault{Link: l, kind: kind, evidence: "chunks_" + evidence}
}

func (f linkFault) name() string { return f.kind + " between " + f.String() }

func (f linkFault) part() Part {
	return Part{Kind: f.kind + ", " + f.store, Name: f.name(), Replica: f.replica, Store: f.store, Shortest: shortest, Longest: longest, Fault: f}
}

// Inject counts the chunks of data that the fault hit.
func (f linkFault) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	e := fault.Event{What: f.name(), At: time.Now()}
	added, undo, err := f.do(f.toxics...)
	if err != nil {
		return nil, err
	}
	fault.Wait(ctx, over)
	err = undo()
	e.Until, e.Hits = time.Now(), hits(added, false)
	e.Seen = map[string]int64{f.evidence: e.Hits}
	return []fault.Event{e}, err
}

// Vanished kills the replica of a link as if its machine had died: the store learns of the end of
// the connections only when the replica is started again, and keeps the replica's locks until then.
func Vanished(l *Link, all Replicas) Part {
	return Part{
		Kind:    "replica vanished for " + l.store,
		Name:    fmt.Sprintf("replica %d killed, its connections to %s closed later", l.replica, l.store),
		Replica: l.replica, Store: l.store, Starts: true, Shortest: shortest, Longest: longest,
		Fault: vanished{l, all},
	}
}

type vanished struct {
	*Link
	all Replicas
}

// slowest is longer than any fault: the connections are closed when the fault is undone.
const slowest = time.Hour

// Inject counts the connections that were closed late.
func (v vanished) Inject(ctx context.Context, over time.Duration) ([]fault.Event, error) {
	added, undo, err := v.do(
		toxic{kind: meterType, direction: Requests, attributes: struct{}{}},
		toxic{kind: "slow_close", direction: Requests, attributes: toxics.SlowCloseToxic{Delay: slowest.Milliseconds()}},
	)
	if err != nil {
		return nil, err
	}
	// The link heals just before the replica starts, since the replica opens new connections.
	events, err := killed{healing{v.all, undo}, v.replica - 1}.Inject(ctx, over)
	closed := hits(added, true)
	events[0].What = fmt.Sprintf("replica %d killed, %d connections to %s closed later", v.replica, closed, v.store)
	events[0].Seen["closes_late"] = closed
	return events, err
}

// healing are Replicas whose link heals before one starts.
type healing struct {
	Replicas
	undo func() error
}

// Start heals the link, and then starts the replica.
func (h healing) Start(ctx context.Context, n int, extra ...string) error {
	return errors.Join(h.undo(), h.Replicas.Start(ctx, n, extra...))
}
