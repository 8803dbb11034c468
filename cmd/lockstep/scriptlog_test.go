package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A script that logs in a loop does not fill the disk.
func TestScriptLogIsBounded(t *testing.T) {
	var out bytes.Buffer
	var now time.Duration
	say := scriptLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Duration { return now })
	for range 1_000_000 {
		say(3, "again")
	}
	if n := strings.Count(out.String(), "\n"); n != scriptLines {
		t.Errorf("%d lines in one instant, want %d", n, scriptLines)
	}
	out.Reset()
	now += time.Second
	say(3, "later")
	say(3, "at last")
	want := []string{"msg=later from=script lines_left_out_before=999900", "msg=\"at last\" from=script\n"}
	for _, w := range want {
		if !strings.Contains(out.String(), w) {
			t.Errorf("%q is not in %s", w, out.String())
		}
	}
	out.Reset()
	say(0, "a debug line counts for nothing")
	if out.Len() != 0 {
		t.Errorf("written: %s", out.String())
	}
}
