// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// progress reports the progress of a long command: lines that stay and, on a terminal, one more line that
// is overwritten.
type progress struct {
	mu       sync.Mutex
	w        io.Writer
	terminal bool
	pending  bool // the last line is to be overwritten
}

func newProgress(w io.Writer) *progress {
	t := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		t.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return t
}

// say prints a line that stays.
func (t *progress) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.erase()
	fmt.Fprintf(t.w, format+"\n", args...)
}

// tick prints a line that the next line overwrites; only on a terminal.
func (t *progress) tick(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.terminal {
		return
	}
	t.erase()
	fmt.Fprint(t.w, line)
	t.pending = true
}

func (t *progress) erase() {
	if t.pending {
		fmt.Fprint(t.w, "\r\x1b[K")
		t.pending = false
	}
}
