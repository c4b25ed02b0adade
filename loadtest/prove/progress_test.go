package main

import (
	"strings"
	"testing"
)

func TestProgress_InALogItWritesOnlyLinesThatStay(t *testing.T) {
	var log strings.Builder
	tell := newProgress(&log)
	tell.tick("1 s")
	tell.say("%d bought", 7)
	tell.tick("2 s")
	if log.String() != "7 bought\n" {
		t.Errorf("%q", log.String())
	}
}

func TestProgress_OnATerminalItWritesOverTheLastTick(t *testing.T) {
	var screen strings.Builder
	tell := &progress{w: &screen, terminal: true}
	tell.tick("1 s")
	tell.tick("2 s")
	tell.say("done")
	tell.say("really")
	if want := "1 s\r\x1b[K2 s\r\x1b[Kdone\nreally\n"; screen.String() != want {
		t.Errorf("%q, want %q", screen.String(), want)
	}
}
