package raftnode

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// TestRaftLines: a line of Raft has its values as fields, and one of each kind and member is written.
func TestRaftLines(t *testing.T) {
	var b bytes.Buffer
	out := slog.New(slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	now := time.Hour
	log := raftLoggerOf(out, func() time.Duration { return now })
	for range 3 {
		log.Warn("heartbeat timeout reached, starting election", "last-leader-addr", "h:1", "last-leader-id", "n\"1")
		log.Error("failed to heartbeat to", "peer", "h:2", "backoff time", 10*time.Millisecond, "error", errors.New("no \n route"))
		log.Error("failed to heartbeat to", "peer", "h:3", "error", errors.New("other"))
		log.Info("initial configuration", "index", 7)
		now += 25 * time.Minute
	}
	want := `{"level":"INFO","msg":"raft: heartbeat timeout reached, starting election","last-leader-addr":"h:1","last-leader-id":"n\"1"}
{"level":"WARN","msg":"raft: failed to heartbeat to","peer":"h:2","backoff time":"10ms","error":"no \n route"}
{"level":"WARN","msg":"raft: failed to heartbeat to","peer":"h:3","error":"other"}
{"level":"DEBUG","msg":"raft: initial configuration","index":7}
` + strings.Repeat(`{"level":"DEBUG","msg":"raft: initial configuration","index":7}
`, 2)
	if got := b.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if b.Reset(); true {
		now += time.Hour
		log.Warn("heartbeat timeout reached, starting election", "last-leader-id", "n2")
	}
	if want := `{"level":"INFO","msg":"raft: heartbeat timeout reached, starting election","last-leader-id":"n2","more_since_the_last_line":2}` + "\n"; b.String() != want {
		t.Errorf("%s, want %s", b.String(), want)
	}
}
