package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// scriptLines is how many lines per second scripts may log. The limit faultLines is separate, so that scripts cannot hide faults of
// the interpreter.
const (
	scriptLines = 100
	faultLines  = 10
)

// scriptLog returns two functions that write to the server's log: lines for redis.log, and faults for faults of the interpreter. now
// is a monotonic clock.
func scriptLog(log *slog.Logger, now func() time.Duration) (lines func(int, string), faults func(string)) {
	levels := []slog.Level{slog.LevelDebug, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}
	own, others := lineLimit{most: faultLines}, lineLimit{most: scriptLines}
	return func(n int, msg string) { others.write(log, now, levels[min(max(n, 0), len(levels)-1)], msg, "script") },
		func(msg string) { own.write(log, now, slog.LevelWarn, msg, "interpreter") }
}

// lineLimit lets lines for the log through, up to lineLimit.most per second.
type lineLimit struct {
	mu                  sync.Mutex
	most, lines, hidden int
	began               time.Duration
}

func (l *lineLimit) write(log *slog.Logger, now func() time.Duration, level slog.Level, msg, from string) {
	if !log.Enabled(context.Background(), level) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	hidden, may := l.takes(now())
	if !may {
		return
	}
	args := []any{"from", from}
	if hidden > 0 {
		args = append(args, "lines_left_out_before", hidden)
	}
	log.Log(context.Background(), level, msg, args...)
}

// takes counts a line and reports whether it may be written. hidden is the number of lines left out since the last written one.
func (l *lineLimit) takes(now time.Duration) (hidden int, may bool) {
	if l.lines == 0 || now-l.began >= time.Second {
		l.began, l.lines = now, 0
	}
	if l.lines++; l.lines > l.most {
		l.hidden++
		return 0, false
	}
	hidden, l.hidden = l.hidden, 0
	return hidden, true
}
