// SPDX-License-Identifier: MIT

package nemesis

import (
	"fmt"
	"testing"
)

func TestLoss_OneDirectionIsLostAndCountedUntilItHeals(t *testing.T) {
	for _, d := range []Direction{Requests, Answers} {
		s := newStore(t)
		l := newLink(t, s)
		c := dial(t, l)
		c.must(t, "before")
		wait(t, s.heard)
		loss, err := l.Lose(d)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, func() bool { return loss.Connections() == 1 })
		if n := loss.Chunks(); n != 0 {
			t.Errorf("%s: %d chunks lost although nothing was sent", d, n)
		}
		fmt.Fprintln(c, "lost")
		eventually(t, func() bool { return loss.Chunks() == 1 })
		if d == Answers {
			if got := wait(t, s.heard); got != "lost" {
				t.Errorf("the store heard %q", got)
			}
		}
		if err := loss.Heal(); err != nil {
			t.Fatal(err)
		}
		if answer, err := c.lines.ReadString('\n'); err == nil {
			t.Errorf("%s: %q was lost, and answered", d, answer)
		}
		dial(t, l).must(t, "after")
		if got := wait(t, s.heard); got != "after" {
			t.Errorf("%s: the store heard %q", d, got)
		}
	}
}
