package server

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMonitorLinesAreBounded: a line for monitors shows a command of moderate size completely, and a part of a larger command.
func TestMonitorLinesAreBounded(t *testing.T) {
	line := func(args ...string) string {
		list := make([][]byte, len(args))
		for i := range args {
			list[i] = []byte(args[i])
		}
		return string(appendMonitorLine(nil, time.Unix(1000, 5000), 3, "127.0.0.1:5", list))
	}
	const head = "+1000.000005 [3 127.0.0.1:5]"
	every := ""
	for c := range 256 {
		every += string([]byte{byte(c)})
	}
	if got := line(every); !strings.HasPrefix(got, head+` "\x00\x01`) || !strings.Contains(got, `\x06\a\b\t\n\x0b\x0c\r\x0e`) ||
		!strings.Contains(got, `\x1f !\"#$%&'()`) || !strings.Contains(got, `[\\]^`) || !strings.HasSuffix(got, "}~\\x7f"+got[strings.Index(got, `\x80`):]) ||
		!strings.HasSuffix(got, `\xff"`+"\r\n") {
		t.Errorf("%s", got)
	}
	whole := strings.Repeat("v", monitorArgBytes)
	if got, want := line("SET", "k", whole), head+` "SET" "k" "`+whole+"\"\r\n"; got != want {
		t.Errorf("%d bytes, not %d", len(got), len(want))
	}
	if got, want := line("SET", "k", whole+"xyz"), head+` "SET" "k" "`+whole+"... (3 more bytes)\"\r\n"; got != want {
		t.Errorf("%d bytes, not %d: %s", len(got), len(want), got[len(got)-40:])
	}
	for what, args := range map[string][]string{
		"a long argument": {"SET", "k", strings.Repeat("\x00", 8<<20)}, "many long ones": slices.Repeat([]string{strings.Repeat("\xff", 40_000)}, 100),
		"many that are empty": slices.Repeat([]string{""}, 1_000_000),
	} {
		if got := line(args...); len(got) > 4*monitorBytes+1000 || !strings.Contains(got[len(got)-40:], " more ") {
			t.Errorf("%s: %d bytes: %s", what, len(got), got[len(got)-40:])
		}
	}
	if n := testing.AllocsPerRun(10, func() { line(strings.Repeat("\x00", 60_000)) }); n > 20 {
		t.Errorf("%.0f allocations for an argument of zeros", n)
	}
}

// The server makes a large line for monitors once, and all monitors share this copy.
func TestMonitorsShareALine(t *testing.T) {
	ts := newTestServer(t, nil)
	for range 3 {
		ts.dial(t).do("MONITOR", "+OK\r\n")
	}
	for _, s := range ts.each() {
		s.out.hold()
	}
	ts.show(0, "lua", [][]byte{bytes.Repeat([]byte("v"), 2*monitorArgBytes)})
	copies := map[string]bool{}
	for _, s := range ts.each() {
		s.out.mu.Lock()
		for _, m := range s.out.late {
			copies[fmt.Sprintf("%p", m.frame)] = true
		}
		s.out.mu.Unlock()
	}
	if len(copies) != 1 {
		t.Errorf("%d copies", len(copies))
	}
}

func BenchmarkMonitorBinary(b *testing.B) {
	arg := bytes.Repeat([]byte{0, 200, 'a', 7}, 10_000)
	b.SetBytes(int64(len(arg)))
	for b.Loop() {
		appendMonitorLine(nil, time.Unix(1000, 0), 0, "lua", [][]byte{arg})
	}
}
