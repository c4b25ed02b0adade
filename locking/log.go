package locking

import (
	"context"
	"log/slog"
)

// Log writes one structured line for each event: event, key, owner, fence, wait,
// held, err, each where it is set. TimedOut, Failed, Lost and Left are at warn
// level, all other events at debug.
func Log(logger *slog.Logger) Observer {
	return func(e Event) {
		level := slog.LevelDebug
		switch e.Kind {
		case TimedOut, Failed, Lost, Left:
			level = slog.LevelWarn
		}
		ctx := context.Background()
		if logger.Enabled(ctx, level) {
			logger.LogAttrs(ctx, level, "lock", attributes(e)...)
		}
	}
}

func attributes(e Event) []slog.Attr {
	list := append(make([]slog.Attr, 0, 8), slog.String("event", string(e.Kind)))
	if len(e.Keys) == 1 {
		list = append(list, slog.String("key", e.Keys[0]))
	} else {
		list = append(list, slog.Any("key", e.Keys))
	}
	if e.Owner != "" {
		list = append(list, slog.String("owner", e.Owner), slog.Int64("fence", int64(e.Fence)))
	}
	if e.Wait > 0 {
		list = append(list, slog.Duration("wait", e.Wait))
	}
	if e.Held > 0 {
		list = append(list, slog.Duration("held", e.Held))
	}
	if e.Err != nil {
		list = append(list, slog.String("err", e.Err.Error()))
	}
	return list
}
