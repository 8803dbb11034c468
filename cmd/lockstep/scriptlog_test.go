package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/store"
)

// The lines of a script that logs in a loop are limited, so that it does not fill the disk.
func TestScriptLogIsBounded(t *testing.T) {
	var out bytes.Buffer
	var now time.Duration
	say, _ := scriptLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Duration { return now })
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

// A script that logs in a loop does not hide a fault of the interpreter.
func TestScriptLinesHideNoFault(t *testing.T) {
	var out bytes.Buffer
	lines, faults := scriptLog(slog.New(slog.NewTextHandler(&out, nil)), func() time.Duration { return 0 })
	engine := luavm.New(luavm.Options{Log: lines, Fault: faults})
	table := store.NewTable(store.Commands(), engine.Commands())
	engine.Bind(table)
	table.Lookup([]byte("get")).Run = func(*store.Ctx) store.Reply { panic("boom") }
	call := &store.Ctx{Txn: store.New().Begin(store.Time{Lease: 1}, 1, store.Env{}), RESP: 2, Cmd: table.Lookup([]byte("eval")),
		Args: [][]byte{[]byte("eval"), []byte("for i=1,200 do redis.log(3,'luavm: again') end redis.call('get','k')"), []byte("0")}}
	for range 20 {
		if r := call.Cmd.Run(call); !r.IsError() {
			t.Fatalf("the script goes on: %q", r.Str)
		}
	}
	if n := strings.Count(out.String(), "again"); n != scriptLines {
		t.Errorf("%d lines of scripts in one instant, want %d", n, scriptLines)
	}
	if n := strings.Count(out.String(), "boom"); n != faultLines {
		t.Errorf("%d lines of faults in one instant, want %d", n, faultLines)
	}
}
