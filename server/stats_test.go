package server

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// TestInventedErrorCodes: a script may invent any number of long error codes. The server counts a limited number of them, and keeps
// only their beginnings.
func TestInventedErrorCodes(t *testing.T) {
	st := newStats(store.NewTable(), &params{})
	for i := range 10 * maxErrorCodes {
		st.failed(nil, fmt.Sprint(i)+strings.Repeat("x", 1<<20))
	}
	if len(st.errors) != maxErrorCodes {
		t.Errorf("%d codes are counted, want %d", len(st.errors), maxErrorCodes)
	}
	for code := range st.errors {
		if len(code) > maxErrorCode {
			t.Fatalf("a code of %d bytes is kept, at most %d may be", len(code), maxErrorCode)
		}
	}
}

// TestResetStat: CONFIG RESETSTAT also resets, in INFO, the counters that /metrics shows. In /metrics, they do not go back.
func TestResetStat(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("SET k v PX 1", "+OK\r\n")
	ts.fake.now.Add(int64(time.Hour))
	c.do("SETNX k v", ":1\r\n")
	ts.clientMemory.cut.Add(3)
	expect := func(expired, evicted string) {
		t.Helper()
		info := c.ask("INFO", "stats").Text
		for _, line := range []string{"expired_keys:" + expired, "evicted_clients:" + evicted} {
			if !strings.Contains(info, line+"\r\n") {
				t.Errorf("INFO does not say %s", line)
			}
		}
	}
	expect("1", "3")
	c.do("CONFIG RESETSTAT", "+OK\r\n")
	expect("0", "0")
	ts.clientMemory.cut.Add(1)
	expect("0", "1")
	if _, n := ts.ClientMemory(); n != 4 {
		t.Errorf("/metrics shows %d clients that were cut off, want 4", n)
	}
}
