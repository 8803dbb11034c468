package server

import (
	"strings"
	"testing"
)

// TestInputReadAheadCounts: what a client sends while it waits is memory of the client, until the node has parsed it.
func TestInputReadAheadCounts(t *testing.T) {
	const many = 50_000
	ts := newTestServer(t, func(c *Config) { c.Loops = -1 })
	c := ts.dial(t)
	c.send("BLPOP list 0\r\n")
	ts.untilBlocked(t, 1)
	s := ts.each()[0]
	c.send(strings.Repeat("PING\r\n", many))
	until(t, "the input to count", func() bool { return s.memory() >= 6*many })
	ts.dial(t).do("RPUSH list x", ":1\r\n")
	c.expect("*2\r\n" + bulk("list") + bulk("x") + strings.Repeat("+PONG\r\n", many))
	until(t, "the input to be parsed", func() bool { return s.memory() == 0 })
}
