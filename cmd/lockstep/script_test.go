package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// others returns the nodes that are not n.
func others(list []*nodes.Node, n *nodes.Node) []*nodes.Node {
	var rest []*nodes.Node
	for _, x := range list {
		if x != n {
			rest = append(rest, x)
		}
	}
	return rest
}

// isError reports whether err is an error reply that begins with code.
func isError(err error, code string) bool {
	reply, ok := err.(respclient.ServerError)
	return ok && strings.HasPrefix(string(reply), code)
}

// waitBusy sends commands, without waiting for their answers, until the server answers that it is busy.
func waitBusy(t *testing.T, name string, do func(args ...string) (any, error)) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	answers := make(chan error, 1000)
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		select {
		case err := <-answers:
			if isError(err, "BUSY ") {
				tick.Stop()
				return
			}
		case <-tick.C:
			go func() {
				_, err := do("GET", "held")
				answers <- err
			}()
		case <-deadline:
			t.Fatalf("no -BUSY through %s", name)
		}
	}
}

// TestEndlessScript: SCRIPT KILL through any node ends an endless script, and the time limit ends one that has written. The leader
// keeps its leadership.
func TestEndlessScript(t *testing.T) {
	list := nodes.Start(t, 3, "--script-time-limit", "3s")
	leader := nodes.Leader(list)
	follower := others(list, leader)[0]
	before, err := leader.Status()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := follower.Do("SET", "held", "owner", "PX", "60000"); got != "OK" {
		t.Fatal(got, err)
	}
	for _, n := range list {
		if got, err := n.Do("CONFIG", "SET", "busy-reply-threshold", "100"); got != "OK" {
			t.Fatal(got, err)
		}
	}
	for _, from := range []*nodes.Node{leader, follower} {
		t.Run("killed through "+from.ID, func(t *testing.T) {
			c := from.Dial()
			if err := c.Send("EVAL", "while true do end", "0"); err != nil {
				t.Fatal(err)
			}
			waitBusy(t, leader.ID, leader.Do)
			waitBusy(t, follower.ID, follower.Do)
			if got, err := from.Do("SCRIPT", "KILL"); got != "OK" {
				t.Errorf("SCRIPT KILL: %v, %v", got, err)
			}
			if _, err := c.Receive(); !isError(err, "ERR ") || !strings.Contains(err.Error(), "killed by user") {
				t.Errorf("the script's caller got %v", err)
			}
			if got, err := from.Do("GET", "held"); got != "owner" {
				t.Errorf("after the kill: %v, %v", got, err)
			}
		})
	}
	t.Run("time limit", func(t *testing.T) {
		c := follower.Dial()
		if err := c.Send("EVAL", "redis.call('set','trace','1') redis.call('del','held') while true do end", "0"); err != nil {
			t.Fatal(err)
		}
		waitBusy(t, follower.ID, follower.Do)
		if _, err := follower.Do("SCRIPT", "KILL"); !isError(err, "UNKILLABLE ") {
			t.Errorf("SCRIPT KILL of a script that wrote: %v", err)
		}
		if _, err := c.Receive(); !isError(err, "ERR ") {
			t.Errorf("the script's caller got %v", err)
		}
		if got, err := follower.Do("EXISTS", "trace", "held"); got != int64(1) {
			t.Errorf("EXISTS trace held = %v, %v: the stopped script left a trace", got, err)
		}
	})
	after, err := leader.Status()
	if err != nil {
		t.Fatal(err)
	}
	if after["role"] != "leader" || after["term"] != before["term"] {
		t.Errorf("leadership moved: role %s, term %s, was %s", after["role"], after["term"], before["term"])
	}
}

// TestHostileInput sends hostile input. The sender gets an error or loses the connection, and nobody else is affected.
func TestHostileInput(t *testing.T) {
	n := nodes.Start(t, 1)[0]
	if got, err := n.Do("SET", "held", "owner", "NX", "PX", "60000"); got != "OK" {
		t.Fatal(got, err)
	}
	scripts := map[string]string{
		"doubles a string":     "local s = 'x' while true do s = s .. s end",
		"repeats a string":     "return string.rep('x', 2^30)",
		"fills a table":        "local t = {} while true do t[#t + 1] = {} end",
		"recurses":             "local function f() return 1 + f() end return f()",
		"recurses under pcall": "local function f() pcall(f) return f() end return f()",
		"formats":              "return string.format('%99999999999d', 1)",
	}
	for name, script := range scripts {
		if got, err := n.Do("EVAL", script, "0"); !isError(err, "ERR ") {
			t.Errorf("a script that %s: %v, %v", name, got, err)
		}
	}
	for name, raw := range map[string]string{
		"garbage":            "\x00\xff\xfe garbage \x01\r\n\r\n*-7\r\n$$$\r\n",
		"600 MB bulk header": "*2\r\n$3\r\nGET\r\n$629145600\r\n",
		"huge array":         "*2147483648\r\n",
		"HTTP":               "POST / HTTP/1.1\r\nHost: example\r\n\r\n",
		"deep nesting":       strings.Repeat("*1\r\n", 10000),
	} {
		if err := n.SendRaw(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := n.Do("GET", "held"); got != "owner" {
			t.Fatalf("after %s: %v, %v\n%s", name, got, err, n.Log())
		}
	}
	big := strings.Repeat("x", 65<<20)
	if _, err := n.Do("SET", "big", big); !isError(err, "ERR ") {
		t.Errorf("a value larger than a log entry: %v", err)
	}
	if got, err := n.Do("SET", "fits", big[:1<<20]); got != "OK" {
		t.Errorf("a value of 1 MB: %v, %v", got, err)
	}
	if log := n.Log(); strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") {
		t.Errorf("the server's log:\n%s", log)
	}
}

// TestExpiryAcrossNodes: expired keys are deleted on every node, on followers, too.
func TestExpiryAcrossNodes(t *testing.T) {
	list := nodes.Start(t, 3)
	for i := range 50 {
		if got, err := list[i%3].Do("SET", fmt.Sprint("short:", i), "v", "NX", "PX", "100"); got != "OK" {
			t.Fatal(got, err)
		}
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		left := ""
		for _, n := range list {
			st, err := n.Status()
			if err != nil {
				t.Fatal(err)
			}
			left += n.ID + ":" + st["keys"] + " "
		}
		if left == "n1:0 n2:0 n3:0 " {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("keys left: %s", left)
		}
	}
}

// TestScriptOnEphemeralNode: a node without a log runs scripts on the goroutines that serve connections. Even there, a script
// delays only the clients that need its outcome.
func TestScriptOnEphemeralNode(t *testing.T) {
	node, stop := startInProcess(t, nil)
	defer stop()
	dial := func() *respclient.Conn {
		c, err := respclient.Dial(node.addr, 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	send := func(c *respclient.Conn, args ...string) {
		if err := c.Send(args...); err != nil {
			t.Fatal(err)
		}
	}
	control := dial()
	for range 5 {
		if got, err := control.Do("CONFIG", "SET", "busy-reply-threshold", "300"); got != "OK" {
			t.Fatal(got, err)
		}
		victim, writer, reader, late := dial(), dial(), dial(), dial()
		send(victim, "EVAL", "while true do end", "0")
		send(writer, "SET", "k", "v")
		send(reader, "INFO")
		if got, err := control.Do("PING"); got != "PONG" && !isError(err, "BUSY ") {
			t.Error(got, err)
		}
		waitBusy(t, "a new connection", func(args ...string) (any, error) {
			c, err := respclient.Dial(node.addr, 20*time.Second)
			if err != nil {
				return nil, err
			}
			defer c.Close()
			return c.Do(args...)
		})
		for _, cmd := range []string{"PING", "GET", "INFO"} {
			if got, err := late.Do(cmd, "k"); !isError(err, "BUSY ") {
				t.Errorf("%s beside a script: %v, %v", cmd, got, err)
			}
		}
		if got, err := late.Do("SCRIPT", "KILL"); got != "OK" {
			t.Errorf("SCRIPT KILL: %v, %v", got, err)
		}
		if _, err := victim.Receive(); !isError(err, "ERR ") || !strings.Contains(err.Error(), "killed by user") {
			t.Errorf("the script's caller got %v", err)
		}
		// These requests may be before the script in the same batch. If they are, they are answered when the script ends.
		if got, err := writer.Receive(); got != "OK" && !isError(err, "BUSY ") {
			t.Errorf("SET beside a script: %v, %v", got, err)
		}
		if got, err := reader.Receive(); err != nil && !isError(err, "BUSY ") {
			t.Errorf("INFO, asked while the script ran: %v, %v", got, err)
		}
		if got, err := writer.Do("SET", "k", "v"); got != "OK" {
			t.Error(got, err)
		}
	}
}

// TestScriptHoldsNobodyUp: while a script runs, a node still answers the commands that it answers by itself, whatever other clients
// send.
func TestScriptHoldsNobodyUp(t *testing.T) {
	n := nodes.Start(t, 1, "--script-time-limit", "20s")[0]
	c, queue := n.Dial(), n.Dial()
	if got, err := c.Do("CONFIG", "SET", "busy-reply-threshold", "60000"); got != "OK" {
		t.Fatal(got, err)
	}
	if err := c.Send("EVAL", "while true do end", "0"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // the script runs by now
	if got, err := queue.Do("MULTI"); got != "OK" {
		t.Fatal(got, err)
	}
	// For the first command, the node has to find out whether it has room, and for the second, whether the command is too long.
	for _, value := range []string{"short", strings.Repeat("long", 1<<18)} {
		if err := queue.Send("SET", "k", value); err != nil {
			t.Fatal(err)
		}
	}
	// While a pause stops writes, the node has to find out whether the script that an EVALSHA names writes.
	if got, err := n.Do("CLIENT", "PAUSE", "60000", "WRITE"); got != "OK" {
		t.Fatal(got, err)
	}
	for _, command := range []string{"EVALSHA", "FCALL"} {
		if err := n.Dial().Send(command, strings.Repeat("0", 40), "0"); err != nil {
			t.Fatal(err)
		}
	}
	// With eight clients, every event loop has some client.
	for range 8 {
		if got, err := n.Do("PING"); got != "PONG" {
			t.Fatal(got, err)
		}
	}
	// A script may be killed only after it has run for a second.
	var got any
	var err error
	until(t, "the script to be killed or to end", func() bool {
		got, err = n.Do("SCRIPT", "KILL")
		return got == "OK" || !isError(err, "NOTBUSY ")
	})
	if got != "OK" {
		t.Fatalf("SCRIPT KILL: %v %v", got, err)
	}
}
