package raftnode

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLogger hands hashicorp/raft's log lines to slog.
func raftLogger(log *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "raft", Level: hclog.Info, DisableTime: true, Output: raftLines{log: log},
	})
}

// raftLoggerOf passes at most one warning or error of each kind and member per hour: Raft logs every failed attempt.
func raftLoggerOf(log *slog.Logger, now func() time.Duration) hclog.Logger {
	few := newSeldom(log, slog.LevelInfo, now)
	few.pause = time.Hour
	return hclog.New(&hclog.LoggerOptions{
		Name: "raft", Level: hclog.Info, DisableTime: true, Output: raftLines{log, few},
	})
}

type raftLines struct {
	log *slog.Logger
	few *seldom // nil: every line is written
}

// Write logs one line, such as "[WARN]  raft: heartbeat timeout reached: …".
func (w raftLines) Write(p []byte) (int, error) {
	line := string(p)
	level := slog.LevelDebug
	for prefix, l := range map[string]slog.Level{"[WARN]": slog.LevelInfo, "[ERROR]": slog.LevelWarn} {
		if len(line) > len(prefix) && line[:len(prefix)] == prefix {
			level = l
		}
	}
	if _, rest, ok := strings.Cut(line, "]"); ok {
		line = rest
	}
	line = strings.TrimSpace(line)
	if w.few == nil || level == slog.LevelDebug {
		w.log.Log(context.Background(), level, line)
		return len(p), nil
	}
	w.few.sayAt(level, raftKind(line), line)
	return len(p), nil
}

// raftKind returns the kind of a line of Raft: the text of the line without its values, and with the member that the line names.
func raftKind(line string) string {
	kind, rest, _ := strings.Cut(line, ": ")
	if text, fields, ok := strings.Cut(rest, ": "); ok && !strings.Contains(text, "=") {
		kind, rest = kind+": "+text, fields
	}
	for field := range strings.FieldsSeq(rest) {
		if name, _, ok := strings.Cut(field, "="); ok && (name == "peer" || name == "server-id" || name == "id") {
			return kind + " " + field
		}
	}
	return kind
}
