// SPDX-License-Identifier: MIT

package main

import (
	"strings"
	"testing"
)

func TestProgress_InALogItWritesOnlyLinesThatStay(t *testing.T) {
	var log strings.Builder
	progress := newProgress(&log)
	progress.tick("1 s")
	progress.say("%d bought", 7)
	progress.tick("2 s")
	if log.String() != "7 bought\n" {
		t.Errorf("%q", log.String())
	}
}

func TestProgress_OnATerminalItWritesOverTheLastTick(t *testing.T) {
	var screen strings.Builder
	progress := &progress{w: &screen, terminal: true}
	progress.tick("1 s")
	progress.tick("2 s")
	progress.say("done")
	progress.say("really")
	if want := "1 s\r\x1b[K2 s\r\x1b[Kdone\nreally\n"; screen.String() != want {
		t.Errorf("%q, want %q", screen.String(), want)
	}
}
