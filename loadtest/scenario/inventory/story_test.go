// SPDX-License-Identifier: MIT

package inventory

import (
	"slices"
	"strings"
	"testing"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

func TestStory_ShowsTheConflictFirstThenTheOversoldOrders(t *testing.T) {
	const ms = time.Millisecond
	sold := func(replica int, sold int64, start, end time.Duration) sale {
		return sale{1, sold, traffic.Attempt{Replica: replica, Start: start, End: end}}
	}
	o := &oversale{SKU: "a", Put: 3, Sales: []sale{
		sold(0, 1, 0, 10*ms),
		sold(0, 2, 20*ms, 30*ms), sold(1, 3, 25*ms, 35*ms),
		sold(2, 4, 500*ms, 510*ms),
	}}
	parts := o.story([]judge.Sample{{At: 400 * ms, Levels: []judge.Level{{Name: "a", Says: 1}}}}).Parts
	clash, over := parts[0], parts[1]
	if !strings.Contains(clash.Text, "2 sales met") || len(clash.Bars) != 2 || len(over.Bars) != 4 {
		t.Fatalf("%s; %d and %d bars; want 2 that met, 2 and 4", clash.Text, len(clash.Bars), len(over.Bars))
	}
	if last := over.Bars[3]; !last.Over || last.Then != "4 of 3 sold" || last.Who != "replica 3 sells 1" || over.Bars[2].Over {
		t.Errorf("%+v", over.Bars)
	}
	if !strings.Contains(over.Text, "500ms") || !strings.Contains(over.Text, "1 left") {
		t.Errorf("the shelf: %s", over.Text)
	}
	lonely := func(n int) []sale { return slices.Repeat([]sale{sold(0, 1, 0, 1)}, n) }
	together := []sale{sold(0, 1, 1, 9), sold(1, 1, 1, 9), sold(2, 1, 1, 9)}
	if place, met := clashes(slices.Concat(lonely(5), together, lonely(9))); met < 3 || place > 5 || place < 2 {
		t.Errorf("3 at once at 5: %d met, shown from %d", met, place)
	}
	if (*oversale)(nil).story(nil) != nil {
		t.Error("a story without an oversale")
	}
}
