// SPDX-License-Identifier: MIT

package pgfault

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProxy_AHeldSegmentIsDeliveredEvenIfItsSenderIsGone(t *testing.T) {
	b := newBank(t)
	w := b.proxy()
	conn := b.connect(w.URL())
	if err := b.unfenced(t.Context(), conn, 90); err != nil {
		t.Fatal(err)
	}
	held, release := w.hold(touches)
	defer release()
	ctx, leave := context.WithCancel(t.Context())
	sent := concurrently(func() error { return b.unfenced(ctx, conn, 10) })
	p := soon(t, "the segment", held)
	leave()
	if err := soon(t, "the sender", sent); !errors.Is(err, context.Canceled) {
		t.Errorf("the sender: %v", err)
	}
	other := b.connect(w.URL()) // another connection is not held back
	if err := b.unfenced(t.Context(), other, 80); err != nil {
		t.Fatal(err)
	}
	b.mustHave(80)
	release()
	soon(t, "the answer", p.answered)
	soon(t, "the end of the transaction", p.tx.ended)
	if diff := cmp.Diff([]string{"BEGIN", "UPDATE 1", "COMMIT"}, p.tags); diff != "" || !p.tx.committed || p.refused() {
		t.Errorf("committed %v, refused %v, tags (-want +got):\n%s", p.tx.committed, p.refused(), diff)
	}
	b.mustHave(10)
}

func TestProxy_ACutBeforeLeavesNothingAndACutAfterLeavesTheCommit(t *testing.T) {
	for m, want := range map[action]int64{cutBefore: 100, cutAfter: 10} {
		b := newBank(t)
		w := b.proxy()
		conn := b.connect(w.URL())
		cut := make(chan *segment, 1)
		w.intercept(func(p *segment) action {
			if !p.commits {
				return deliver
			}
			cut <- p
			return m
		})
		if err := b.unfenced(t.Context(), conn, 10); err == nil || !conn.IsClosed() {
			t.Errorf("%d: error %v, closed %v", m, err, conn.IsClosed())
		}
		p := soon(t, "the cut", cut)
		soon(t, "the end of the transaction", p.tx.ended)
		if p.tx.committed != (m == cutAfter) {
			t.Errorf("%d: committed %v", m, p.tx.committed)
		}
		b.mustHave(want)
	}
}
