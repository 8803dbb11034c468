package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"github.com/lockstep-io/lockstep/store/codec"
)

// A new node asks any member to add it to the cluster, after bind. The connection to the member's peer port begins with 'J' and
// carries one frame each way:
//
//	kind 1  join    str id | str peer address | str data directory
//	kind 2  answer  0: it is taken in, 1: it is refused for good, 2: try again |
//	                str why
//
// Frames and str are as in internal/forward/wire.go. A version that does not know the data directory sends none, and skips it.
const (
	frameJoin       = 1
	frameJoinAnswer = 2

	joinDone    = 0
	joinRefused = 1
	joinLater   = 2

	// If no member has taken a new node in, the node waits for joinPause before it asks again.
	joinPause = 500 * time.Millisecond
	// joinSayAgain is the number of failed attempts after which a node logs the same failure again.
	joinSayAgain = 20
	// joinTimeout is how long a member may take to answer.
	joinTimeout = adminTimeout + 2*time.Second
)

// errJoinRefused is the refusal of a member if it is useless to ask again.
var errJoinRefused = errors.New("refused")

// serveJoin answers a node that wants to become a member.
func (n *Node) serveJoin(conn net.Conn) {
	defer conn.Close()
	select {
	case <-n.opened:
	case <-n.ctx.Done():
		return
	}
	f, err := frame.ReadShort(peers.NewReader(conn))
	if err != nil || f.Kind != frameJoin {
		return
	}
	peerport.HandshakeDone(conn)
	r := codec.Reader{B: f.Body}
	a := adminRequest{kind: adminJoin, id: string(r.Bytes()), addr: string(r.Bytes())}
	if len(r.B) > 0 {
		a.directory = string(r.Bytes())
	}
	if r.Bad {
		return
	}
	status, why := byte(joinDone), ""
	switch err := n.admit(a); {
	case err == nil:
	default:
		status, why = joinLater, err.Error()
		if _, is := errors.AsType[refusal](err); is || errors.Is(err, ErrOneNode) {
			status = joinRefused
		}
	}
	// If the answer is lost, the node asks again.
	_, _ = conn.Write(joinAnswer(status, why))
}

func joinAnswer(status byte, why string) []byte {
	return frame.End(codec.AppendStr(append(frame.Begin(nil, frameJoinAnswer, 0), status), why), 0)
}

// errNotMember is the answer of a node that is no member, and so cannot take others in.
var errNotMember = errors.New("this node is no member itself")

func (n *Node) admit(a adminRequest) error {
	if m := n.Membership(); m == Joining || m == Removed {
		return fmt.Errorf("%w: %s", errNotMember, m)
	}
	return n.administer(a)
}

// join asks members again and again until this node is a member, or is refused for good.
func (n *Node) join() {
	defer n.work.Done()
	said, again := "", 0
	for n.ctx.Err() == nil && n.Membership() == Joining {
		var last error
		for _, addr := range n.cfg.Join {
			if last = n.joinThrough(addr); last == nil {
				n.cfg.Logger.Info("Taken into the cluster; catching up", "by", addr, "id", n.cfg.ID)
				break
			}
			if errors.Is(last, errJoinRefused) {
				n.cfg.Fatal(fmt.Errorf("--join %s: %w", addr, last))
				return
			}
		}
		pause := joinPause
		if last == nil {
			pause = joinTimeout // within this time the log should arrive, and show this node that it is a member
			said = ""
		} else if again++; last.Error() != said || again == joinSayAgain {
			said, again = last.Error(), 0
			n.cfg.Logger.Warn("Not a member yet; asking again", "join", strings.Join(n.cfg.Join, ","), "error", last)
		}
		select {
		case <-n.ctx.Done():
		case <-time.After(pause):
		}
	}
}

// joinThrough learns from one member which cluster this node joins, and asks that member to take this node in.
func (n *Node) joinThrough(addr string) error {
	if err := n.bind(addr); err != nil {
		return err
	}
	return n.askToJoin(addr, n.cons.Directory())
}

// call opens a connection, which ends after joinTimeout or when this node closes. The caller must call over in any case.
func (n *Node) call(addr string, protocol byte) (conn net.Conn, over func(), err error) {
	if conn, err = n.cfg.peers.Dial(addr, protocol, peerport.DialTimeout); err != nil {
		return nil, nil, err
	}
	forget := context.AfterFunc(n.ctx, func() { conn.Close() })
	timer := time.AfterFunc(joinTimeout, func() { conn.Close() })
	return conn, func() {
		timer.Stop()
		forget()
		conn.Close()
	}, nil
}

// bind asks a member which cluster this node joins, and notes it. Until then, this node follows no leader (raftnode/binding.go).
func (n *Node) bind(addr string) error {
	conn, over, err := n.call(addr, peerport.ProtoFacts)
	if err != nil {
		return err
	}
	defer over()
	own := n.peers.Own()
	own.Directory = "" // the address may belong to a stranger
	member, err := peers.Exchange(conn, peers.NewReader(conn), own)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errNoPeerPort, err)
	case member.Cluster == "":
		return fmt.Errorf("%s, at %s, does not know yet which cluster it belongs to", member.ID, addr)
	}
	if err := n.cons.Bind(member.Cluster); errors.Is(err, datadir.ErrOtherCluster) {
		return fmt.Errorf("%w: data directory %s has begun to join another cluster: give the address of one of its members, or name an empty directory", errJoinRefused, n.cfg.Data)
	} else if err != nil {
		return fmt.Errorf("which cluster this node joins could not be noted: %w", err)
	}
	return nil
}

// askToJoin asks one member to take this node in, and names this node's data directory.
func (n *Node) askToJoin(addr, directory string) error {
	conn, over, err := n.call(addr, peerport.ProtoJoin)
	if err != nil {
		return err
	}
	defer over()
	body := codec.AppendStr(codec.AppendStr(frame.Begin(nil, frameJoin, 0), n.cfg.ID), n.cfg.peerAddr())
	body = codec.AppendStr(body, directory)
	if _, err := conn.Write(frame.End(body, 0)); err != nil {
		return fmt.Errorf("%w: %w", errNoPeerPort, err)
	}
	return readJoinAnswer(peers.NewReader(conn))
}

// errNoPeerPort is the error of askToJoin if nobody answers at the address, or if the answer is not that of a member.
var errNoPeerPort = errors.New("no answer: is it the --peer-listen address of a member, and has this node the members' --peer-secret-file or certificates?")

// readJoinAnswer reads the member's answer. It returns nil, errJoinRefused, or another error, after which this node
// asks again.
func readJoinAnswer(r *bufio.Reader) error {
	if head, err := r.Peek(2); err != nil || head[0] != 0 || head[1] != 0 {
		return errNoPeerPort // an answer is shorter than 64 KiB, so this is no frame of a member
	}
	f, err := frame.ReadShort(r)
	if err != nil {
		return err
	}
	if f.Kind != frameJoinAnswer || len(f.Body) == 0 {
		return frame.ErrMalformed
	}
	in := codec.Reader{B: f.Body[1:]}
	why := string(in.Bytes())
	switch {
	case in.Bad:
		return frame.ErrMalformed
	case f.Body[0] == joinDone:
		return nil
	case f.Body[0] == joinRefused:
		return fmt.Errorf("%w: %s", errJoinRefused, why)
	}
	return errors.New(why)
}
