package server

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestPatternsThatTakeLong: who has many patterns that take long is cut off by the first message for which they do.
// Others get it, and patterns that take long in small numbers are matched.
func TestPatternsThatTakeLong(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		evil := strings.Repeat("*[ac]", 20) + "*[bd]"
		channel := strings.Repeat("a", 4000)
		attacker, few, all := ts.dial(t), ts.dial(t), ts.dial(t)
		var many []string
		for i := range 1000 {
			many = append(many, fmt.Sprint(evil, i))
		}
		attacker.send(array(append([]string{"PSUBSCRIBE"}, many...)...))
		for i := range many {
			attacker.expect(fmt.Sprintf("*3\r\n$10\r\npsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(many[i]), many[i], i+1))
		}
		for c, pattern := range map[*client]string{few: evil + "*", all: "a*"} {
			c.send(array("PSUBSCRIBE", pattern))
			c.expect(fmt.Sprintf("*3\r\n$10\r\npsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(pattern), pattern))
		}
		sender := ts.dial(t)
		for range 2 {
			sender.send(array("PUBLISH", channel+"b", "m"))
			sender.expect(":2\r\n")
			for c, pattern := range map[*client]string{few: evil + "*", all: "a*"} {
				c.expect(fmt.Sprintf("*4\r\n$8\r\npmessage\r\n$%d\r\n%s\r\n$4001\r\n%sb\r\n$1\r\nm\r\n", len(pattern), pattern, channel))
			}
		}
		attacker.expectClosed()
	})
}

// TestMessagesThatTakeLongTogether: so do many short messages with many patterns, of which none takes long.
func TestMessagesThatTakeLongTogether(t *testing.T) {
	bothPaths(t, func(t *testing.T, ts *testServer) {
		subscribe := func(n int) *client {
			c := ts.dial(t)
			for i := range n {
				name := fmt.Sprint(n, "-", i)
				c.send(array("PSUBSCRIBE", name))
				c.expect(fmt.Sprintf("*3\r\n$10\r\npsubscribe\r\n$%d\r\n%s\r\n:%d\r\n", len(name), name, i+1))
			}
			return c
		}
		many, some, few := subscribe(300), subscribe(200), subscribe(3)
		took := func(d time.Duration) {
			ts.hub.mu.RLock()
			defer ts.hub.mu.RUnlock()
			ts.hub.matched(epoch, epoch.Add(d))
		}
		took(matchTime / 2)
		few.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		many.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		took(matchTime)
		many.expectClosed()
		some.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
		few.do("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	})
}
