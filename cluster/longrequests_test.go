package cluster

import (
	"bufio"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
)

// longCall is a call that is too long for a request, and the reply to it. The call takes little memory in the test.
type longCall struct {
	name string
	Call
	want store.Error
}

func (n *testNode) longCalls() []longCall {
	long := func(line string) Call {
		c := n.call(line)[0]
		c.Args = append(c.Args, slices.Repeat(c.Args[1:], call.MaxRequest/len(c.Args[1]))...)
		return c
	}
	key := strings.Repeat("k", 1<<20)
	watch := watchCall(key)[0]
	watch.Txn.Watched = slices.Repeat(watch.Txn.Watched, call.MaxRequest/len(key))
	exec := Call{Cmd: call.Exec, Txn: &Transaction{Calls: []Call{long("DEL " + key)}}}
	write, read := store.ErrEntryTooBig(n.MaxEntry()), store.ErrArgumentsTooBig(n.MaxEntry())
	return []longCall{{"DEL", long("DEL " + key), write}, {"EXISTS", long("EXISTS " + key), read}, {"WATCH", watch, read}, {"EXEC", exec, store.ErrExecAbort(write)}}
}

// block runs a blocking command through a node and returns its reply.
func block(n *Node, c Call) string {
	done := make(chan string, 1)
	n.Block(&Blocked{Call: c, Done: func(r store.Reply) { done <- r.Str }})
	n.Flush()
	return <-done
}

// TestLongRequestsAreRefused: a request that is too long is refused to its client before it is encoded, on the leader as on
// another node.
func TestLongRequestsAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		link := p.b.routes.get().link
		for name, n := range map[string]*Node{"the leader": p.Node, "a follower": p.b} {
			for _, c := range p.longCalls() {
				if got := n.SubmitPart(nil, []Call{c.Call, c.Call}, nil); len(got) != 1 || got[0].Str != string(c.want) {
					t.Errorf("%s, %s: %d replies, the first is %.200q", name, c.name, len(got), got[0].Str)
				}
				done := make(chan struct{})
				async := &Submission{Calls: []Call{c.Call}, Done: func() { close(done) }}
				n.SubmitAsync(async)
				n.Flush()
				if <-done; async.Replies[0].Str != string(c.want) {
					t.Errorf("%s, %s, asynchronously: %.200q", name, c.name, async.Replies[0].Str)
				}
			}
			blocking := p.call("BLPOP " + strings.Repeat("k", 1<<20) + " 1")[0]
			blocking.Args = slices.Insert(blocking.Args, 1, slices.Repeat(blocking.Args[1:2], call.MaxRequest>>20)...)
			if got, want := block(n, blocking), string(store.ErrEntryTooBig(n.MaxEntry())); got != want {
				t.Errorf("%s, BLPOP: %.200q", name, got)
			}
			replies := 0
			refused := &Blocked{Call: blocking, Done: func(store.Reply) { replies++ }}
			n.Block(refused)
			n.Unblock(refused, store.Nil, func(unblocked bool) {
				if unblocked {
					t.Errorf("%s: a refused BLPOP was unblocked", name)
				}
			})
			if replies != 1 {
				t.Errorf("%s: a refused BLPOP was answered %d times", name, replies)
			}
		}
		// A pipeline is split instead: each of its commands is short enough.
		some := p.call("EXISTS " + strings.Repeat("k", call.MaxRequest/4))
		if got := p.SubmitPart(nil, slices.Repeat(some, 5), nil); len(got) != 3 {
			t.Errorf("%d of 5 commands were run at once", len(got))
		}
		if got := text(p.Submit(slices.Repeat(some, 5), nil)); got != "0 0 0 0 0" {
			t.Errorf("all commands of a pipeline: %q", got)
		}
		if got := p.doOn(p.b, "INCR c"); got != "1" || p.b.routes.get().link != link {
			t.Errorf("afterwards: %q, by the same link: %v", got, p.b.routes.get().link == link)
		}
	})
}

// TestFrameBeyondTheLimit: if a frame is too long after all, only its client gets an error, and the link goes on.
func TestFrameBeyondTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		link, long := p.b.routes.get().link, strings.Repeat("x", 2000)
		link.Out.Longest = 1000
		for line, want := range map[string]string{"SET k " + long: "-ERR", "EXISTS " + long: "-ERR", "SET k 1": "OK"} {
			if got := p.doOn(p.b, line); got != want {
				t.Errorf("%.10s: %q, want %q", line, got, want)
			}
		}
		if got := text(p.b.Submit(p.txn(nil, "GET k", "SET k "+long), nil)); got != "-EXECABORT" {
			t.Errorf("EXEC: %q", got)
		}
		if got := block(p.b, p.call("BLPOP " + long + " 1")[0]); !strings.HasPrefix(got, "ERR one command") {
			t.Errorf("BLPOP: %q", got)
		}
		if got := p.doOn(p.b, "GET k"); got != "1" || p.b.routes.get().link != link {
			t.Errorf("afterwards: %q, by the same link: %v", got, p.b.routes.get().link == link)
		}
	})
}

// TestLongResults: if the leader cannot send a reply to the peer, it sends an error that tells whether the command was executed.
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
		answer(4, true, 1<<30) // so much would wait to be sent that the link would end
		go p.out.Run()
		r := bufio.NewReader(far)
		want := map[uint64]string{1: string(store.ErrReplyTooBig(frame.MaxLength)), 2: string(ErrReplyLeftOut), 3: large.Str, 4: string(ErrReplyLeftOut)}
		for len(want) > 0 {
			f, err := readCall(r)
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
