package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// scriptLines is how many lines of scripts the log takes per second. A script that logs in a loop would
// fill the disk.
const scriptLines = 100

// scriptLog sends redis.log to the server's log, at most scriptLines per second. The next line after
// that says how many lines were omitted. now is a monotonic clock.
func scriptLog(log *slog.Logger, now func() time.Duration) func(int, string) {
	levels := []slog.Level{slog.LevelDebug, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}
	var mu sync.Mutex
	var began time.Duration
	var lines, hidden int
	return func(n int, msg string) {
		level := levels[min(max(n, 0), len(levels)-1)]
		if !log.Enabled(context.Background(), level) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if t := now(); lines == 0 || t-began >= time.Second {
			began, lines = t, 0
		}
		if lines++; lines > scriptLines {
			hidden++
			return
		}
		args := []any{"from", "script"}
		if hidden > 0 {
			args, hidden = append(args, "lines_left_out_before", hidden), 0
		}
		log.Log(context.Background(), level, msg, args...)
	}
}
