// SPDX-License-Identifier: MIT

package main

import (
	"fmt"
	"io"
	"log"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/grpclog"
)

const (
	logBytes  = 1 << 20     // kept while the reader of standard error stands still: about 4000 lines of requests
	flushWait = time.Second // for the last lines of a program that ends
)

// linesLost is the message of the line that follows lost ones.
const linesLost = "lines of the log were lost: standard error was not read, or refused them"

// logWriter writes to standard error outside of whatever logs. Write never waits: lines are kept up to logBytes while
// standard error blocks, and further ones are dropped and counted. Each line is one write, so that lines of several
// processes stay whole in one pipe.
//
// A write inside a request would hold the handler's mutex. A reader that stands still would then stop every request, also
// one whose purchase is committed.
type logWriter struct {
	to    io.Writer
	total atomic.Uint64 // lines lost
	ended chan struct{}

	mu      sync.Mutex
	wake    sync.Cond // lines has some, or closing
	lines   [][]byte
	size    int // of lines, in bytes
	dropped uint64
	closing bool
	log     *slog.Logger // says how many lines were lost; nil: none does
}

// newLogWriter starts a goroutine, which close ends.
func newLogWriter(to io.Writer) *logWriter {
	w := &logWriter{to: to, ended: make(chan struct{})}
	w.wake.L = &w.mu
	go w.run()
	return w
}

// Write takes one line.
func (w *logWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.size+len(p) > logBytes {
		w.dropped++
		w.total.Add(1)
		return len(p), nil
	}
	w.lines, w.size = append(w.lines, append([]byte(nil), p...)), w.size+len(p)
	w.wake.Signal()
	return len(p), nil
}

// run writes until close. A loss is told only after a line was written, or a standard error that refuses every line would
// get one more for each.
func (w *logWriter) run() {
	defer close(w.ended)
	var lost uint64
	for {
		lines, dropped, ok := w.take()
		if !ok {
			return
		}
		var err error
		for _, line := range lines {
			if _, err = w.to.Write(line); err != nil {
				lost++
				w.total.Add(1)
			}
		}
		if lost += dropped; lost > 0 && err == nil {
			w.tell(lost)
			lost = 0
		}
	}
}

// take waits for lines. It returns false once all are taken and the writer is closing.
func (w *logWriter) take() (lines [][]byte, dropped uint64, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.lines) == 0 && !w.closing {
		w.wake.Wait()
	}
	lines, dropped = w.lines, w.dropped
	w.lines, w.size, w.dropped = nil, 0, 0
	return lines, dropped, len(lines) > 0
}

func (w *logWriter) tell(lost uint64) {
	w.mu.Lock()
	log := w.log
	w.mu.Unlock()
	if log != nil {
		log.Warn(linesLost, "lines", lost)
	}
}

// reportTo sets the log that says how many lines were lost, and exports their number.
func (w *logWriter) reportTo(log *slog.Logger, reg prometheus.Registerer) {
	w.mu.Lock()
	w.log = log
	w.mu.Unlock()
	reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "log_lines_lost_total", Help: "Lines of the log that standard error did not take.",
	}, func() float64 { return float64(w.total.Load()) }))
}

// close waits at most flushWait until all lines are written.
func (w *logWriter) close() {
	w.mu.Lock()
	w.closing = true
	w.wake.Signal()
	w.mu.Unlock()
	select {
	case <-w.ended:
	case <-time.After(flushWait):
	}
}

// divert makes libraries that write to standard error write here: all that use the standard library's logger, and gRPC.
// A crash of the Go runtime is still written directly.
func divert(w *logWriter) {
	log.SetOutput(w)
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, w))
}

// mongoLog is the log of MongoDB's driver, which is silent unless its variables MONGODB_LOG_… are set.
type mongoLog struct{ *slog.Logger }

func (l mongoLog) Info(_ int, message string, about ...any) { l.Logger.Info(message, about...) }

func (l mongoLog) Error(err error, message string, about ...any) {
	l.Logger.Error(fmt.Sprint(message, ": ", err), about...)
}
