package main

import (
	"io"
	"log/slog"
	"time"
)

// logger writes JSON or text. In JSON, durations are in milliseconds and their names end
// in _ms; slog's default is nanoseconds without a unit.
func (f logFlags) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "text" {
		return slog.New(slog.NewTextHandler(w, options))
	}
	options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration {
			return slog.Float64(a.Key+"_ms", float64(a.Value.Duration())/float64(time.Millisecond))
		}
		return a
	}
	return slog.New(slog.NewJSONHandler(w, options))
}
