package cluster

import (
	"bufio"
	"net"
	"strings"
	"testing"

	"lockstep/cluster/internal/fair"
	"lockstep/cluster/internal/forward"
	"lockstep/cluster/internal/frame"
	"lockstep/store"
)

// TestLongResults: a reply that cannot be sent to the peer is replaced by an error that tells whether the command was executed;
// the short replies beside it and the link stay.
func TestLongResults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		near, far := net.Pipe()
		p := &peerConn{n: newTestNode(t).Node, out: forward.NewOutbox(near)}
		defer p.out.Close()
		large := store.Str(strings.Repeat("x", 2*fair.SmallReply))
		answer := func(id uint64, wrote bool, extent int) {
			p.answer(id)(&request{calls: make([]Call, 2), replies: []store.Reply{store.OK, large}, wrote: wrote, extent: extent})
		}
		p.out.Longest = fair.SmallReply
		answer(1, false, 2*fair.SmallReply)
		answer(2, true, 2*fair.SmallReply)
		p.out.Longest = frame.MaxLength
		answer(3, true, 2*fair.SmallReply)
		answer(4, true, 1<<30) // the link would end, so much would wait
		go p.out.Run()
		r := bufio.NewReader(far)
		want := map[uint64]string{1: string(store.ErrReplyTooBig(frame.MaxLength)), 2: string(ErrReplyLeftOut), 3: large.Str, 4: string(ErrReplyLeftOut)}
		for len(want) > 0 {
			f, err := frame.Read(r)
			if err != nil {
				t.Fatal(err)
			}
			replies, err := forward.ReadResult(f.Body, nil)
			if err != nil || len(replies) != 2 || replies[0].Str != store.OK.Str || replies[1].Str != want[f.ID] {
				t.Errorf("result %d: %v, %.80q", f.ID, err, text(replies))
			}
			delete(want, f.ID)
		}
	})
}
