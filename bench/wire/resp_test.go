package wire

import (
	"bufio"
	"errors"
	"io"
	"net"
	"testing"
)

// replay returns a client of a server that sends the text "said", and nothing else. The reader reads what the client sends.
func replay(t *testing.T, said string) (*Resp, *bufio.Reader) {
	t.Helper()
	mine, its := net.Pipe()
	t.Cleanup(func() { mine.Close(); its.Close() })
	go func() { _, _ = io.WriteString(its, said) }() // fails if the test ends before everything is read
	return newResp(mine), bufio.NewReader(its)
}

func TestRespSends(t *testing.T) {
	c, heard := replay(t, "")
	c.Command("SET", "k", "a b", "NX")
	c.Command("PING")
	const want = "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na b\r\n$2\r\nNX\r\n*1\r\n$4\r\nPING\r\n"
	go func() { _ = c.Flush() }() // if it fails, the test sees that nothing arrives
	got := make([]byte, len(want))
	if _, err := io.ReadFull(heard, got); err != nil || string(got) != want {
		t.Errorf("sent %q, %v, want %q", got, err, want)
	}
}

func TestRespReads(t *testing.T) {
	c, _ := replay(t, "+OK\r\n:-7\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*2\r\n$1\r\nx\r\n:1\r\n$0\r\n\r\n-ERR no\r\n!x\r\n")
	for i, want := range []Reply{
		{Kind: '+', Text: []byte("OK")},
		{Kind: ':', Int: -7},
		{Kind: '$', Int: 3, Text: []byte("a\r\n")},
		{Kind: '$', Int: -1, Null: true},
		{Kind: '*', Int: -1, Null: true},
		{Kind: '*', Int: 2},
		{Kind: '$', Int: 1, Text: []byte("x")},
		{Kind: ':', Int: 1},
		{Kind: '$'},
	} {
		got, err := c.Reply()
		if err != nil || got.Kind != want.Kind || got.Int != want.Int || got.Null != want.Null || string(got.Text) != string(want.Text) {
			t.Errorf("reply %d: %+v, %v, want %+v", i, got, err, want)
		}
	}
	var refused ErrorReply
	if _, err := c.Reply(); !errors.As(err, &refused) || refused != "ERR no" {
		t.Errorf("got %v", err)
	}
	if _, err := c.Reply(); !errors.Is(err, errRESP) {
		t.Errorf("got %v", err)
	}
}

// The reply to a command of Forgo is not taken for the next reply.
func TestRespForgo(t *testing.T) {
	c, heard := replay(t, ":1\r\n:1\r\n+PONG\r\n")
	go func() { _, _ = io.Copy(io.Discard, heard) }() // until the pipe is closed
	c.Forgo("DEL", "a")
	c.Forgo("DEL", "b")
	if reply, err := c.Do("PING"); err != nil || string(reply.Text) != "PONG" {
		t.Errorf("%+v, %v", reply, err)
	}
}

func TestRespAllocatesNothing(t *testing.T) {
	c := &Resp{out: make([]byte, 0, 1024)}
	key := "lock:1"
	if n := testing.AllocsPerRun(100, func() {
		c.out = c.out[:0]
		c.Command("SET", key, "owner", "NX", "PX", "30000")
	}); n != 0 {
		t.Errorf("%v allocations per command", n)
	}
}
