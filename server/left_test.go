package server

import (
	"strings"
	"testing"
)

// TestClientLeavesASlowPipeline: the server does not run the rest of a slow pipeline whose client has closed the connection.
func TestClientLeavesASlowPipeline(t *testing.T) {
	const commands = 40
	for name, change := range map[string]func(*Config){"goroutines": nil, "loops": withLoops(1)} {
		for _, between := range []string{"", "CLIENT ID\r\n"} {
			t.Run(name+" "+strings.TrimSpace(between), func(t *testing.T) {
				ts := newTestServer(t, change)
				ts.fake.slow.Store(true)
				c := ts.dial(t)
				release := ts.fake.holdBack()
				c.send(strings.Repeat("INCR left\r\n"+between, commands))
				ts.await(func() bool { return ts.fake.held.Load() == 1 })
				if err := c.conn.Close(); err != nil {
					t.Fatal(err)
				}
				release()
				ts.await(func() bool { return ts.clients() == 0 })
				ts.fake.mu.Lock()
				ran := len(ts.fake.batch)
				ts.fake.mu.Unlock()
				if ran > 5 {
					t.Errorf("%d of %d commands were run for a client that had gone", ran, commands)
				}
				c = ts.dial(t)
				c.send(strings.Repeat("INCR stays\r\n", 9))
				c.expect(":1\r\n:2\r\n:3\r\n:4\r\n:5\r\n:6\r\n:7\r\n:8\r\n:9\r\n")
			})
		}
	}
}
