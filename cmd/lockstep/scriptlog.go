package main

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// scriptLines is how many lines per second scripts may write to the log: a script that logs in a loop must not fill the disk.
// faultLines is how many lines per second may report faults of the interpreter. The two limits are separate, so that a script
// cannot hide a fault.
const (
	scriptLines = 100
	faultLines  = 10
)

// scriptLog returns two functions that write to the server's log. lines writes the lines of redis.log, with their level, at most
// scriptLines per second. faults writes the faults of the interpreter, at most faultLines per second. If lines were left out, the
// next line says how many. now is a monotonic clock.
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

// takes counts a line and reports whether the line may be written. If it may, hidden is the number of lines that were left out
// since the last written one.
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
