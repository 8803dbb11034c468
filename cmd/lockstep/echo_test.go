package main

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

// echoClient is a client that sends pipelines. Each command has a unique reply, so a reply that belongs elsewhere is noticed.
type echoClient struct {
	name string
	resp int
	conn net.Conn
	in   *bufio.Reader
	r    *rand.Rand
	made int // number of unique texts so far
	kept []*keptValue

	pipeline []echoCall
	right    *atomic.Int64
	excused  *atomic.Int64
}

// echoCall is a command, with a function that says whether a value may be its reply.
type echoCall struct {
	args  []string
	local bool // the node answers it without a leader, so an error about the leader is no excuse
	wants func(v transcript.Value) bool
}

// keptValue is a write, with what the reply has told about the write's effect.
type keptValue struct {
	key, value    string
	known, absent bool // neither is true: the write may or may not have had an effect
}

// told notes what v, the reply to the write, says about the write's effect. succeeded says whether v confirms the write.
func (k *keptValue) told(v transcript.Value, succeeded bool) bool {
	k.known = succeeded
	k.absent = !succeeded && excuse(v) && strings.HasPrefix(v.Text, "CLUSTERDOWN ")
	return succeeded
}

// fits reports whether v may be the reply to a read of this key.
func (k *keptValue) fits(v transcript.Value) bool {
	if nothing(v) {
		return !k.known
	}
	return !k.absent && is(v, k.value)
}

func excuse(v transcript.Value) bool {
	return v.Type == '-' && (strings.HasPrefix(v.Text, "CLUSTERDOWN ") || strings.HasPrefix(v.Text, "INDETERMINATE "))
}

func nothing(v transcript.Value) bool { return v.Null || v.Type == '_' }

func is(v transcript.Value, text string) bool { return v.Type == '$' && !v.Null && v.Text == text }

func isStatus(v transcript.Value, text string) bool { return v.Type == '+' && v.Text == text }

// isList reports whether v is an aggregate of the type "kind" whose elements are these bulk strings.
func isList(v transcript.Value, kind byte, texts ...string) bool {
	return v.Type == kind && !v.Null && slices.EqualFunc(v.Elems, texts, is)
}

// unique returns a text that no other call returns. It may be very long.
func (c *echoClient) unique() string {
	c.made++
	text := fmt.Sprintf("%s:%d", c.name, c.made)
	if c.r.IntN(40) == 0 {
		text += strings.Repeat(".", c.r.IntN(30_000))
	}
	return text
}

// short returns a text that no other call returns, and that is short enough not to be cut off in an error reply.
func (c *echoClient) short() string {
	c.made++
	return fmt.Sprintf("%s:%d", c.name, c.made)
}

func (c *echoClient) call(wants func(transcript.Value) bool, args ...string) {
	c.pipeline = append(c.pipeline, echoCall{args: args, wants: wants})
}

// here does what call does, for a command that the node answers without a leader.
func (c *echoClient) here(wants func(transcript.Value) bool, args ...string) {
	c.pipeline = append(c.pipeline, echoCall{args: args, local: true, wants: wants})
}

// keep records a new write, so that later commands can read its key.
func (c *echoClient) keep() *keptValue {
	k := &keptValue{key: "key:" + c.short(), value: c.unique()}
	c.kept = append(c.kept[max(len(c.kept)-50, 0):], k)
	return k
}

// next adds one command or a few to the pipeline.
func (c *echoClient) next() {
	switch c.r.IntN(10) {
	case 0:
		k := c.keep()
		c.call(func(v transcript.Value) bool { return k.told(v, isStatus(v, "OK")) }, "SET", k.key, k.value, "PX", "600000")
	case 1, 2:
		if len(c.kept) > 0 {
			k := c.kept[c.r.IntN(len(c.kept))]
			c.call(k.fits, "GET", k.key)
		}
	case 3:
		a, b := c.unique(), c.unique()
		c.call(func(v transcript.Value) bool { return isList(v, '*', a, b) }, "EVAL", "return {KEYS[1], ARGV[1]}", "1", a, b)
	case 4:
		k := c.keep()
		c.call(func(v transcript.Value) bool { return k.told(v, is(v, k.value)) },
			"EVAL", "redis.call('SET', KEYS[1], ARGV[1]) return ARGV[1]", "1", k.key, k.value)
	case 5:
		text := c.unique()
		c.here(func(v transcript.Value) bool { return is(v, text) }, [2]string{"PING", "ECHO"}[c.r.IntN(2)], text)
	case 6:
		text := c.short()
		c.here(func(v transcript.Value) bool { return v.Type == '-' && strings.Contains(v.Text, "'"+text+"'") }, "NOSUCH", text)
		c.here(func(v transcript.Value) bool { return is(v, c.name) }, "CLIENT", "GETNAME")
	case 7:
		c.queue()
	case 8:
		c.hash()
	case 9:
		c.transaction()
	}
}

// queue adds two commands to the pipeline: one pushes an element to a list, and the other waits for that element.
func (c *echoClient) queue() {
	k := &keptValue{key: "queue:" + c.short(), value: c.unique()}
	c.call(func(v transcript.Value) bool { return k.told(v, v.Type == ':' && v.Text == "1") }, "RPUSH", k.key, k.value)
	c.call(func(v transcript.Value) bool {
		return !k.known && nothing(v) || !k.absent && isList(v, '*', k.key, k.value)
	}, "BLPOP", k.key, "0.2")
}

// hash adds two commands to the pipeline: one writes a hash, and the other reads it. The reply to the read differs between RESP2
// and RESP3.
func (c *echoClient) hash() {
	k := &keptValue{key: "hash:" + c.short(), value: c.unique()}
	c.call(func(v transcript.Value) bool { return k.told(v, v.Type == ':' && v.Text == "1") }, "HSET", k.key, "field", k.value)
	kind := byte('*')
	if c.resp == 3 {
		kind = '%'
	}
	c.call(func(v transcript.Value) bool {
		return !k.known && isList(v, kind) || !k.absent && isList(v, kind, "field", k.value)
	}, "HGETALL", k.key)
}

func (c *echoClient) transaction() {
	k, text := c.keep(), c.unique()
	queued := func(v transcript.Value) bool { return isStatus(v, "QUEUED") }
	c.here(func(v transcript.Value) bool { return isStatus(v, "OK") }, "MULTI")
	c.here(queued, "SET", k.key, k.value)
	c.here(queued, "ECHO", text)
	c.here(queued, "GET", k.key)
	c.call(func(v transcript.Value) bool {
		return k.told(v, v.Type == '*' && len(v.Elems) == 3 && isStatus(v.Elems[0], "OK") && is(v.Elems[1], text) && is(v.Elems[2], k.value))
	}, "EXEC")
}

// converse sends one pipeline, in pieces that are cut at random places, and checks its replies.
func (c *echoClient) converse() error {
	c.pipeline = c.pipeline[:0]
	for range 1 + c.r.IntN(1+c.r.IntN(30)) {
		c.next()
	}
	var out []byte
	for _, call := range c.pipeline {
		out = transcript.AppendCommand(out, call.args...)
	}
	if err := c.conn.SetDeadline(time.Now().Add(40 * time.Second)); err != nil {
		return err
	}
	for len(out) > 0 {
		n := 1 + c.r.IntN(len(out))
		if _, err := c.conn.Write(out[:n]); err != nil {
			return err
		}
		out = out[n:]
	}
	for i, call := range c.pipeline {
		v, err := transcript.ReadValue(c.in)
		if err != nil {
			return fmt.Errorf("the reply to %.80q: %w", call.args, err)
		}
		switch {
		case call.wants(v):
			c.right.Add(1)
		case excuse(v) && !call.local:
			c.excused.Add(1)
		default:
			return fmt.Errorf("RESP%d: %.80q, command %d of %d, got %.160q", c.resp, call.args, i+1, len(c.pipeline), v.Lines())
		}
	}
	return nil
}

// greet chooses the version of the protocol, and sets the name of the connection.
func (c *echoClient) greet() error {
	_, err := c.conn.Write(transcript.AppendCommand(nil, "HELLO", fmt.Sprint(c.resp), "SETNAME", c.name))
	if err != nil {
		return err
	}
	v, err := transcript.ReadValue(c.in)
	if err == nil && v.Type == '-' {
		err = errors.New(v.Text)
	}
	return err
}

// echoes are the echoClients of one node.
type echoes struct {
	t              *testing.T
	stop           atomic.Bool
	clients        sync.WaitGroup
	right, excused atomic.Int64
}

func startEchoes(t *testing.T, addr string, seed uint64, count int) *echoes {
	t.Helper()
	e := &echoes{t: t}
	for i := range count {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		c := &echoClient{name: fmt.Sprint("c", i), resp: 2 + i%2, conn: conn, in: bufio.NewReader(conn),
			r: rand.New(rand.NewPCG(seed, uint64(i))), right: &e.right, excused: &e.excused}
		if err := c.greet(); err != nil {
			t.Fatal(err)
		}
		e.clients.Go(func() {
			defer conn.Close()
			for !e.stop.Load() {
				if err := c.converse(); err != nil {
					t.Errorf("%s: %v", c.name, err)
					e.stop.Store(true)
				}
			}
		})
	}
	t.Cleanup(e.end)
	return e
}

// more waits until the clients have got as many more replies as count says, all of which belong to their requests.
func (e *echoes) more(count int64) {
	e.t.Helper()
	from := e.right.Load()
	until(e.t, "replies", func() bool { return e.stop.Load() || e.right.Load() >= from+count })
	if e.stop.Load() {
		e.t.FailNow()
	}
}

func (e *echoes) end() {
	e.stop.Store(true)
	e.clients.Wait()
}

// ledAway makes sure that a node other than home is the leader, and returns the leader.
func ledAway(t *testing.T, list []*nodes.Node, home *nodes.Node) (leader *nodes.Node) {
	t.Helper()
	until(t, "another leader than "+home.ID, func() bool {
		if leader = nodes.Leader(list); leader != home {
			return leader != nil
		}
		if code, out := home.Admin("transfer", others(list, home)[0].ID); code != exitOK {
			t.Log(out) // the transfer may fail on a busy machine
		}
		return false
	})
	return leader
}

// J9: replies to forwarded pipelines went to other requests or clients. Here each reply belongs to its request, whatever happens to
// leaders.
func TestJ9RepliesBelongToTheirRequests(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	list := nodes.Start(t, 3, "--failover-wait", "20s")
	home := others(list, ledAway(t, list, list[0]))[0]
	e := startEchoes(t, home.Addr, seed, 8)
	const some = 1500
	e.more(some)
	for range 3 {
		leader := ledAway(t, list, home)
		for _, n := range others(list, leader) {
			if n != home {
				if code, out := home.Admin("transfer", n.ID); code != exitOK {
					t.Log(out)
				}
			}
		}
		e.more(some)

		leader = ledAway(t, list, home)
		leader.Kill()
		e.more(some)
		leader.Run()
		leader.WaitReady()

		leader = ledAway(t, list, home)
		if err := leader.Process().Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		e.more(some)
		if err := leader.Process().Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		e.more(some)
	}
	e.end()
	t.Logf("%d replies to their requests, %d errors", e.right.Load(), e.excused.Load())
}
