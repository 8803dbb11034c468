package server

import (
	"strings"
	"testing"
)

// TestManyPipelinesTakeLittle: while many commands wait for replies, sessions submit few at once. An idle session has given back the
// memory of a large pipeline.
func TestManyPipelinesTakeLittle(t *testing.T) {
	eachPath(t, func(t *testing.T, loops int) {
		ts := newTestServer(t, withLoops(loops))
		ts.fake.whole.Store(true)
		const clients, commands = manyCalls / maxCalls, 2 * maxCalls
		pipeline, replies := strings.Repeat("GET k\r\n", commands), strings.Repeat("$-1\r\n", commands)
		var all []*client
		for range clients + 1 {
			c := ts.dial(t)
			c.send(pipeline) // the first pipeline only enlarges the buffer for the input
			c.expect(replies)
			all = append(all, c)
		}
		release := ts.fake.holdBack()
		for i, c := range all {
			c.send(pipeline)
			until(t, "the submission", func() bool { return int(ts.fake.held.Load()) == i+1 })
		}
		if got := ts.submitted.Load(); got >= manyCalls+maxCalls {
			t.Errorf("%d commands were submitted, want fewer than %d", got, manyCalls+maxCalls)
		}
		release()
		for _, c := range all {
			c.expect(replies)
			c.do("PING", "+PONG\r\n")
		}
		if got := ts.submitted.Load(); got != 0 {
			t.Errorf("%d commands count as submitted at the end", got)
		}
		sessions := ts.each()
		for _, c := range all {
			c.conn.Close()
		}
		until(t, "the end of the sessions", func() bool { return len(ts.each()) == 0 }) // now nobody else uses them
		for _, s := range sessions {
			if cap(s.calls) > keepCalls || cap(s.replies) > keepCalls {
				t.Errorf("an idle session keeps room for %d calls and %d replies", cap(s.calls), cap(s.replies))
			}
		}
	})
}
