package raftnode

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLogger hands hashicorp/raft's log lines to slog, with their fields.
func raftLogger(log *slog.Logger) hclog.Logger { return lines(raftLines{log: log}) }

// raftLoggerOf passes at most one warning or error of each kind and member per hour: Raft logs every failed attempt.
func raftLoggerOf(log *slog.Logger, now func() time.Duration) hclog.Logger {
	few := newSeldom(log, slog.LevelInfo, now)
	few.pause = time.Hour
	return lines(raftLines{log, few})
}

func lines(to raftLines) hclog.Logger {
	log := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Info, Output: io.Discard})
	log.RegisterSink(to)
	return log
}

type raftLines struct {
	log *slog.Logger
	few *seldom // nil: every line is written
}

// levels are the levels of Raft's lines: what Raft warns of, lockstep expects.
var levels = map[hclog.Level]slog.Level{hclog.Info: slog.LevelDebug, hclog.Warn: slog.LevelInfo, hclog.Error: slog.LevelWarn}

// Accept implements hclog.SinkAdapter. fields are names and values in turn.
func (w raftLines) Accept(name string, level hclog.Level, msg string, fields ...any) {
	to, is := levels[level]
	if !is {
		return
	}
	msg = name + ": " + msg
	kind, attrs := msg, make([]any, 0, len(fields))
	for i := 0; i+1 < len(fields); i += 2 {
		field, value := fmt.Sprint(fields[i]), fields[i+1]
		if f, is := value.(hclog.Format); is && len(f) > 0 {
			value = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
		if s, is := value.(fmt.Stringer); is {
			value = fmt.Sprint(s) // Raft's own types, and durations with their units; a String that panics does no harm
		}
		attrs = append(attrs, field, value)
		if field == "peer" || field == "server-id" || field == "id" {
			kind = fmt.Sprint(kind, " ", field, "=", value)
		}
	}
	if w.few == nil || to == slog.LevelDebug {
		w.log.Log(context.Background(), to, msg, attrs...)
		return
	}
	w.few.sayAt(to, kind, msg, attrs...)
}
