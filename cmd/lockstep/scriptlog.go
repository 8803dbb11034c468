package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// scriptLines is how many lines of scripts the log takes per second, and faultLines how many about faults of the interpreter. A
// script that logs in a loop would fill the disk, and must not hide a fault.
const (
	scriptLines = 100
	faultLines  = 10
)

// faultMark begins what luavm says of itself. A script that begins its lines so uses up the limit of faults.
const faultMark = "luavm: "

// scriptLog sends redis.log and the faults of the interpreter to the server's log, so many lines per second. The next line after
// that says how many lines were omitted. now is a monotonic clock.
func scriptLog(log *slog.Logger, now func() time.Duration) func(int, string) {
	levels := []slog.Level{slog.LevelDebug, slog.LevelDebug, slog.LevelInfo, slog.LevelWarn}
	scripts, faults := lineLimit{most: scriptLines}, lineLimit{most: faultLines}
	var mu sync.Mutex
	return func(n int, msg string) {
		level := levels[min(max(n, 0), len(levels)-1)]
		if !log.Enabled(context.Background(), level) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		limit := &scripts
		if level == slog.LevelWarn && strings.HasPrefix(msg, faultMark) {
			limit = &faults
		}
		hidden, may := limit.takes(now())
		if !may {
			return
		}
		args := []any{"from", "script"}
		if hidden > 0 {
			args = append(args, "lines_left_out_before", hidden)
		}
		log.Log(context.Background(), level, msg, args...)
	}
}

// lineLimit lets a number of lines through per second.
type lineLimit struct {
	most, lines, hidden int
	began               time.Duration
}

// takes reports whether a line may be written, and then how many before it were not.
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
