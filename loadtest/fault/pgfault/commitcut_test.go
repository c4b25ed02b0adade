// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"strings"
	"testing"
	"time"

	"shop/loadtest/fault"
	"shop/transfer"
)

// A client that continues after each cut counts its answers; the fault counts the cuts.
func TestCommitCut_BeforeIsNotCommittedAndAfterIs(t *testing.T) {
	b := newBank(t)
	proxies := []*Proxy{b.proxy(), b.proxy()}
	ctx, stop := context.WithCancel(t.Context())
	results := make(chan [2]int64, len(proxies)) // committed, broken
	for _, w := range proxies {
		go func() {
			var n [2]int64
			conn := b.connect(w.URL())
			for ctx.Err() == nil {
				if err := b.unfenced(t.Context(), conn, 1); err == nil {
					n[0]++
					continue
				}
				n[1]++
				conn = b.connect(w.URL())
			}
			results <- n
		}()
	}
	var before, after int64
	for limit := time.Now().Add(time.Minute); (before < 2 || after < 2) && time.Now().Before(limit); {
		events, err := CommitCut{Proxies: proxies, Every: 10 * time.Millisecond}.Inject(t.Context(), 400*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		b, a := events[0].Seen["commits_cut_before"], events[0].Seen["commits_cut_after"]
		if before, after = before+b, after+a; b-a < 0 || b-a > 1 || events[0].Hits != b+a {
			t.Errorf("%d before, %d after, %d in all", b, a, events[0].Hits)
		}
	}
	stop()
	var ok, broken int64
	for range proxies {
		n := soon(t, "a client", results)
		ok, broken = ok+n[0], broken+n[1]
	}
	if before < 2 || after < 2 || broken != before+after {
		t.Errorf("%d before, %d after, %d clients saw it", before, after, broken)
	}
	if _, version, _ := b.row(); version != ok+after {
		t.Errorf("%d commits, want %d that were answered and %d that were cut after", version, ok, after)
	}
}

func TestCommitCut_WithoutWritesNothingIsCut(t *testing.T) {
	b := newBank(t)
	w := b.proxy()
	conn := b.connect(w.URL())
	injection := concurrently(func() error {
		events, err := CommitCut{Proxies: []*Proxy{w}, Every: time.Millisecond}.Inject(t.Context(), 50*time.Millisecond)
		if events[0].Hits != 0 {
			t.Errorf("%+v", events)
		}
		return err
	})
	for done := false; !done; {
		select {
		case err := <-injection:
			if err != nil {
				t.Error(err)
			}
			done = true
		default:
			for _, sql := range []string{"begin", "SELECT balance FROM accounts", "commit"} {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A batch gives up its lease after a COMMIT without an answer. A single transfer may go on under its own: its key decides.
func TestCommitCut_CountsBatchesUnderALeaseThatHadToBeGivenUp(t *testing.T) {
	s := &scissors{orders: make(chan action, 4), keys: map[string]bool{}, fences: map[int64]bool{}}
	guard := string(transfer.WritesFence) + " = $2 where id = $1"
	for _, c := range []struct {
		fence byte
		key   string // how the transaction stores its keys
		cut   bool
		kept  int64 // so far
	}{
		{fence: 7, key: writeKeys, cut: true},
		{fence: 8, key: writeKeys},
		{fence: 7, key: writeKeys, kept: 1},
		{fence: 9, key: writeKey, cut: true, kept: 1},
		{fence: 9, key: writeKey, kept: 1},
	} {
		if c.cut {
			s.orders <- cutAfter
		}
		conn := &conn{}
		send := func(statements ...string) {
			p := &segment{asks: true, answered: make(chan struct{})}
			for _, sql := range statements {
				conn.add(p, sql, [][]byte{make([]byte, 16), {0, 0, 0, 0, 0, 0, 0, c.fence}})
			}
			if s.cut(p) != deliver {
				p.end()
			}
		}
		send("begin", guard)
		send(c.key, string(transfer.WritesBalance), "commit")
		if s.kept != c.kept {
			t.Errorf("fence %d: %d kept, want %d", c.fence, s.kept, c.kept)
		}
	}
	if len(s.fences) != 1 {
		t.Errorf("fences of batches that were cut: %v, want 7", s.fences)
	}
}

// The key identifies a request in the history, so that both the cut of its COMMIT and the
// decision are observed from outside.
func TestCommitCut_NamesTheKeysWhoseCommitItCut(t *testing.T) {
	s := &scissors{orders: make(chan action, 1), keys: map[string]bool{}}
	for _, key := range []string{"a", "b", "b"} {
		c, p := &conn{}, &segment{asks: true}
		c.add(p, "begin", nil)
		c.add(p, writeKey, [][]byte{make([]byte, 16), []byte(key), nil, nil, nil})
		c.add(p, "insert into ledger_entries", nil)
		p.tx.wrote = true
		c.add(p, "commit", nil)
		select {
		case s.orders <- cutBefore:
		default: // the last order was not carried out: a key is cut only once
		}
		s.cut(p)
	}
	var event fault.Event
	if s.stop(t.Context(), &event); event.Seen["commits_cut_before"] != 2 || strings.Join(event.Keys, " ") != "a b" {
		t.Errorf("%d cut, of %q; want a and b", event.Seen["commits_cut_before"], event.Keys)
	}
}
