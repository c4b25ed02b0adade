// SPDX-License-Identifier: MIT

package nemesis

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"shop/loadtest/fault"
)

// limit bounds each wait of a test; a busy machine is slow.
const limit = 20 * time.Second

// store echoes each line, and reports the lines received and the connections that have ended.
type store struct {
	addr  string
	heard chan string
	ended chan struct{}
}

func newStore(t *testing.T) *store {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &store{addr: l.Addr().String(), heard: make(chan string, 100), ended: make(chan struct{}, 100)}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer conn.Close()
				for lines := bufio.NewScanner(conn); lines.Scan(); {
					s.heard <- lines.Text()
					fmt.Fprintln(conn, lines.Text())
				}
				s.ended <- struct{}{}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); work.Wait() })
	return s
}

// client is a connection to a store through a link.
type client struct {
	net.Conn
	lines *bufio.Reader
}

func dial(t *testing.T, l *Link) client {
	t.Helper()
	conn, err := net.DialTimeout("tcp", l.Addrs()[0], limit)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(limit))
	t.Cleanup(func() { _ = conn.Close() })
	return client{conn, bufio.NewReader(conn)}
}

// ask sends a line and waits for the answer.
func (c client) ask(line string) (string, error) {
	fmt.Fprintln(c, line)
	answer, err := c.lines.ReadString('\n')
	return strings.TrimSpace(answer), err
}

func (c client) must(t *testing.T, line string) {
	t.Helper()
	if got, err := c.ask(line); got != line || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
}

func newLink(t *testing.T, s *store) *Link {
	l, err := NewLink(1, "redis", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// begin injects a part of a link until undo is called.
func begin(t *testing.T, p Part) (hit func() int64, undo func()) {
	t.Helper()
	f := p.Fault.(linkFault)
	added, remove, err := f.do(f.toxics...)
	if err != nil {
		t.Fatal(err)
	}
	return func() int64 { return hits(added, false) }, func() {
		t.Helper()
		if err := remove(); err != nil {
			t.Fatal(err)
		}
	}
}

// wait waits for what a store reports.
func wait[T any](t *testing.T, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(limit):
		t.Fatalf("the store reports nothing within %v", limit)
	}
	return got
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); {
		if !fault.Wait(t.Context(), time.Millisecond) || time.Now().After(end) {
			t.Fatalf("the condition does not hold within %v", limit)
		}
	}
}

func TestCut_NothingPassesAndHealingClosesTheConnection(t *testing.T) {
	s := newStore(t)
	l := newLink(t, s)
	c := dial(t, l)
	c.must(t, "before")
	wait(t, s.heard)
	hit, undo := begin(t, Cut(l))
	fmt.Fprintln(c, "lost")
	fresh := dial(t, l) // connects, and gets no answer
	fmt.Fprintln(fresh, "lost too")
	eventually(t, func() bool { return hit() == 2 })
	undo()
	for _, c := range []client{c, fresh} {
		if answer, err := c.lines.ReadString('\n'); err == nil {
			t.Errorf("%q", answer)
		}
	}
	dial(t, l).must(t, "after")
	if got := wait(t, s.heard); got != "after" {
		t.Errorf("the lost %q arrived", got)
	}
}

func TestCut_OfAnswersTheStoreStillExecutesTheRequest(t *testing.T) {
	s := newStore(t)
	l := newLink(t, s)
	c := dial(t, l)
	c.must(t, "before")
	wait(t, s.heard)
	hit, undo := begin(t, Cut(l, Answers))
	fmt.Fprintln(c, "commit")
	if got := wait(t, s.heard); got != "commit" {
		t.Errorf("%q", got)
	}
	eventually(t, func() bool { return hit() > 0 })
	undo()
	if answer, err := c.lines.ReadString('\n'); err == nil {
		t.Errorf("%q", answer)
	}
}

func TestCut_TheStoreLearnsOfAnEndOnlyAfterHealing(t *testing.T) {
	for _, p := range []func(*Link) Part{
		func(l *Link) Part { return Cut(l) },
		func(l *Link) Part { return Cut(l, Requests) },
	} {
		s := newStore(t)
		l := newLink(t, s)
		c := dial(t, l)
		c.must(t, "before")
		_, undo := begin(t, p(l))
		_ = c.Close()
		other := newLink(t, s) // had the end reached the store, it would come before this answer
		dial(t, other).must(t, "other")
		select {
		case <-s.ended:
			t.Error("the store knows already")
		default:
		}
		undo()
		wait(t, s.ended)
	}
}

func TestSlowed_EverythingArrivesAndIsCounted(t *testing.T) {
	s := newStore(t)
	l := newLink(t, s)
	c := dial(t, l)
	hit, undo := begin(t, Slowed(l, 5*time.Millisecond, 4*time.Millisecond))
	for n := range 10 {
		c.must(t, fmt.Sprint("line ", n))
	}
	undo()
	c.must(t, "after")
	if n := hit(); n < 20 {
		t.Errorf("%d hits, want one of each request and answer", n)
	}
}

// replicas are two replicas whose connections to a store end when they are killed.
type replicas struct {
	t     *testing.T
	l     *Link
	s     *store
	conns []client
	done  []string
}

func (r *replicas) Len() int { return 2 }
func (r *replicas) Kill(context.Context, int) error {
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.done = append(r.done, "kill")
	dial(r.t, newLink(r.t, r.s)).must(r.t, "other")
	select {
	case <-r.s.ended:
		r.t.Error("the store knows already")
	default:
	}
	return nil
}

func (r *replicas) Start(context.Context, int, ...string) error {
	r.done = append(r.done, "start")
	for range r.conns {
		wait(r.t, r.s.ended) // before the replica is back
	}
	dial(r.t, r.l).must(r.t, "again")
	return nil
}
func (r *replicas) Pause(int) error  { r.done = append(r.done, "pause"); return nil }
func (r *replicas) Resume(int) error { r.done = append(r.done, "resume"); return nil }

func TestVanished_TheStoreLearnsOfItOnlyWhenTheReplicaStarts(t *testing.T) {
	s := newStore(t)
	l := newLink(t, s)
	r := &replicas{t: t, l: l, s: s, conns: []client{dial(t, l), dial(t, l)}}
	for _, c := range r.conns {
		c.must(t, "before")
	}
	events, err := Vanished(l, r).Fault.Inject(t.Context(), time.Millisecond)
	if err != nil || fmt.Sprint(r.done) != "[kill start]" || events[0].Seen["closes_late"] != 2 || events[0].Replica != 2 || !events[0].Ends {
		t.Errorf("%+v, %v, %v", events, err, r.done)
	}
}

func TestReplicas_AreStartedAndResumedEvenIfTheRunIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for want, part := range map[string]func(Replicas) Part{
		"[kill start]":   func(r Replicas) Part { return Killed(r, 0) },
		"[pause resume]": func(r Replicas) Part { return Paused(r, 1) },
	} {
		s := newStore(t)
		r := &replicas{t: t, l: newLink(t, s), s: s}
		events, err := part(r).Fault.Inject(ctx, time.Hour)
		if err != nil || fmt.Sprint(r.done) != want || events[0].Hits != 1 {
			t.Errorf("%+v, %v: %v, want %s", events, err, r.done, want)
		}
	}
}

func TestCut_IsUndoneWhenTheRunIsCancelled(t *testing.T) {
	s := newStore(t)
	l := newLink(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, part := range []Part{Cut(l), Cut(l, Requests), Cut(l, Answers), Slowed(l, time.Hour, 0)} {
		if _, err := part.Fault.Inject(ctx, time.Hour); err != nil {
			t.Errorf("%s: %v", part.Name, err)
		}
		dial(t, l).must(t, part.Name)
	}
}
