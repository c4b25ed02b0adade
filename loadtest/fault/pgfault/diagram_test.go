// SPDX-License-Identifier: MIT

package pgfault

import (
	"strings"
	"testing"
	"time"
)

func TestLateRecord_DiagramShowsTheStepsInOrder(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	l := LateRecord{
		Replica: 1, Way: Stopped, SQL: []string{"begin", "update accounts set fence = $2 where id = $1", "update accounts set fence = $2 where id = $1"},
		OldFence: 41, NewFence: 44, OldVersion: 7, NewVersion: 8,
		Held: began, Taken: at(1), Overtaken: at(20), Delivered: at(21), Answered: at(22), Resumed: at(23), Answer: "UPDATE 0", Refused: true,
	}
	text := l.Diagram()
	for _, part := range []string{
		"sequenceDiagram\n", "is yours, fence 41", "begin, update accounts set fence\n", "1.0 ms: stopped", "is yours, fence 44",
		"20.0 ms: commits, fence 44, version 7 → 8", "21.0 ms: delivered", "22.0 ms: UPDATE 0", "23.0 ms: goes on", "refused",
	} {
		i := strings.Index(text, part)
		if i < 0 {
			t.Fatalf("%q is missing or out of order in:\n%s", part, l.Diagram())
		}
		text = text[i+len(part):]
	}
}
