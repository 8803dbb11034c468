package luavm

import (
	"strings"
	"testing"
	"time"
)

// TestLongNamesOfSources: a script can give a source a long name. The name is part of the error, so it counts toward the size of
// the reply.
func TestLongNamesOfSources(t *testing.T) {
	const limit = 8 << 20 // a reply may have a quarter
	const head = "local f=loadstring('%',string.rep('=n',1.5*2^20)) f()"
	for code, want := range map[string]string{"error(1)": msgMemory, "while true do end": msgTime} {
		w := newWorld(t, Options{Now: tick(), TimeLimit: time.Second, MemoryLimit: limit})
		if r := w.eval(strings.Replace(head, "%", code, 1)); !strings.HasPrefix(r.Str, "ERR "+want) || len(r.Str) > limit/replyShare {
			t.Errorf("%s: %d bytes, %.100q", code, len(r.Str), r.Str)
		}
	}
	w := newWorld(t, Options{MemoryLimit: limit})
	if r := w.do(2, "function", "load", "#!lua name=l\nlocal a=redis[('x'):rep(3*2^20)]"); len(r.Str) > limit/replyShare || !strings.Contains(r.Str, msgMemory) {
		t.Errorf("FUNCTION LOAD: %d bytes, %.100q", len(r.Str), r.Str)
	}
	if r := w.eval("loadstring('error(1)','=name')()"); !strings.HasSuffix(r.Str, " on =name:1.") {
		t.Errorf("a short name: %v", r)
	}
}
