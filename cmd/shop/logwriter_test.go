// SPDX-License-Identifier: MIT

package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// refusing is a standard error that refuses lines until it is told not to.
type refusing struct {
	lines
	accepts bool
}

func (r *refusing) Write(p []byte) (int, error) {
	if !r.accepts {
		return 0, errors.New("broken pipe")
	}
	return r.lines.Write(p)
}

func TestLogWriter_DropsAndCountsWhatDoesNotFitWhileItsReaderStandsStill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, pipe := io.Pipe() // a Write waits for a Read
		w := newLogWriter(pipe)
		log, reg := logFlags{LogFormat: "json"}.open(w)
		fill := strings.Repeat("x", 1<<10)
		for range 2 * logBytes >> 10 {
			log.Info(fill)
		}
		var out lines
		go func() { _, _ = io.Copy(&out, reader) }()
		synctest.Wait()
		lost, _ := out.find(linesLost)["lines"].(float64)
		if written := strings.Count(out.String(), fill); lost == 0 || float64(written)+lost != 2*logBytes>>10 {
			t.Errorf("%d lines written, %v told as lost, of %d", written, lost, 2*logBytes>>10)
		}
		if !strings.HasSuffix(strings.TrimSpace(out.String()), fmt.Sprintf(`"lines":%.0f}`, lost)) {
			t.Error("the loss is not told after the lines before it")
		}
		if n, err := testutil.GatherAndCount(reg, "log_lines_lost_total"); n != 1 || err != nil || w.total.Load() != uint64(lost) {
			t.Errorf("%d metrics, %v: %d lost", n, err, w.total.Load())
		}
		w.close()
		_ = pipe.Close()
	})
}

// A standard error that refuses all lines gets no line about each.
func TestLogWriter_CountsRefusedLinesAndTellsThemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &refusing{}
		w := newLogWriter(to)
		log, _ := logFlags{LogFormat: "json"}.open(w)
		for range 10 {
			log.Info("refused")
			synctest.Wait()
		}
		to.accepts = true
		log.Info("taken")
		synctest.Wait()
		if lost := to.find(linesLost)["lines"]; lost != 10.0 || w.total.Load() != 10 || strings.Count(to.String(), "\n") != 2 {
			t.Errorf("%v told, %d counted:\n%s", lost, w.total.Load(), to)
		}
		w.close()
	})
}

func TestLogWriter_CloseWritesTheRestAndDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		w := newLogWriter(&out)
		for i := range 1000 {
			fmt.Fprintln(w, i)
		}
		if w.close(); !strings.HasSuffix(out.String(), "\n999\n") {
			t.Errorf("%.20q…", out.String())
		}
		reader, pipe := io.Pipe()
		w = newLogWriter(pipe)
		fmt.Fprintln(w, "never read")
		start := time.Now()
		if w.close(); time.Since(start) != flushWait {
			t.Errorf("closed after %v", time.Since(start))
		}
		reader.Close()
	})
}
