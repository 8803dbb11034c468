package raftnode

import (
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/hashicorp/raft"
)

// A request over a connection that had broken is made again, until its
// connection is a new one. After other errors no request is made again.
func TestRequestsAreMadeAfresh(t *testing.T) {
	broken := &net.OpError{Op: "read", Err: syscall.ECONNRESET}
	for i, c := range []struct {
		outcomes []error
		want     error
		made     int
	}{
		{[]error{nil}, nil, 1},
		{[]error{io.EOF, broken, io.ErrUnexpectedEOF, nil}, nil, 4},
		{[]error{broken, broken, broken, broken}, broken, 4},
		{[]error{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}, syscall.ECONNREFUSED, 1},
		{[]error{&net.OpError{Op: "read", Err: syscall.ETIMEDOUT}}, syscall.ETIMEDOUT, 1},
		{[]error{io.EOF, raft.ErrNotLeader}, raft.ErrNotLeader, 2},
	} {
		made := 0
		err := afresh(func() error {
			made++
			return c.outcomes[made-1]
		})
		if made != c.made || fmt.Sprint(err) != fmt.Sprint(c.outcomes[c.made-1]) {
			t.Errorf("%d: made %d times, then %v", i, made, err)
		}
	}
}
