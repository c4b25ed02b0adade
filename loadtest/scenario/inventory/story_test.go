// SPDX-License-Identifier: MIT

package inventory

import (
	"strings"
	"testing"
	"time"

	"shop/loadtest/judge"
	"shop/loadtest/traffic"
)

func TestStory_ShowsTheSalesAroundTheFirstBeyondTheStock(t *testing.T) {
	const ms = time.Millisecond
	sold := func(replica int, sold int64, start, end time.Duration) sale {
		return sale{1, sold, traffic.Attempt{Replica: replica, Start: start, End: end}}
	}
	o := &oversale{SKU: "a", Put: 3, Sales: []sale{
		sold(0, 1, 0, 10*ms),
		sold(0, 2, 20*ms, 30*ms), sold(1, 3, 25*ms, 35*ms),
		sold(2, 4, 500*ms, 510*ms),
	}}
	story := o.story([]judge.Sample{{At: 400 * ms, Levels: []judge.Level{{Name: "a", Says: 1}}}})
	if !strings.Contains(story.Text, "2 sales met") || len(story.Bars) != 4 {
		t.Fatalf("%s; %d bars; want 2 that met, and 4", story.Text, len(story.Bars))
	}
	if last := story.Bars[3]; !last.Over || last.Then != "4 of 3 sold" || last.Who != "replica 3 sells 1" || story.Bars[2].Over {
		t.Errorf("%+v", story.Bars)
	}
	if !strings.Contains(story.Text, "500ms") || !strings.Contains(story.Text, "1 left") {
		t.Errorf("the shelf: %s", story.Text)
	}
	if (*oversale)(nil).story(nil) != nil {
		t.Error("a story without an oversale")
	}
}
