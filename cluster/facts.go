package cluster

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"time"

	"lockstep/cluster/internal/frame"
	"lockstep/cluster/internal/peerport"
	"lockstep/cluster/internal/roster"
	"lockstep/store/codec"
)

// Every node asks every other node, once in beatPeriod, how it is, on a connection of its own to the peer
// port. Raft would tell about the leader only. A client that asks a follower for the other nodes wants to
// know all of them, and which of them are up.
//
// Such a connection begins with 'D'. Then the asking node sends a frame with its facts and gets one with
// the other node's facts, as often as it likes.
//
//	kind 1  facts   str id | str plain | str sentinel | str cluster |
//	                str run id | uvarint applied | str name of the cluster |
//	                you | str peer address of the sender | str data directory |
//	                n, n times str id of a member |
//	                str plain with TLS | str sentinel with TLS | str cluster with TLS
//
// you is what the answering node thinks of the asking one: 0 nothing, 1 it is a member, 2 it is none, 3
// it has the id of a member and another data directory. Frames, integers and str are as in wire.go. A
// reader skips what follows the fields that it knows. A frame may end after applied, the peer address,
// the data directory or the members, so that versions can differ in what they say. A node tells its data
// directory to members only: another node that names it would pass for this node. A frame that is longer
// than frame.MaxShort is refused. Facts change nothing unless they come from a member, with the data directory
// that it was met with.
const (
	frameFacts = 1

	beatPeriod = 250 * time.Millisecond
	// beatTimeout is how long a peer may take to answer before it is asked on a new connection.
	beatTimeout = time.Second
)

// facts are what a node tells the others of itself.
type facts struct {
	id      string
	addrs   Addresses
	runID   string
	applied uint64
	cluster string   // name of the cluster it belongs to; "" if it does not know
	you     standsAs // what it thinks of the node that asks
	peer    string   // its peer address; "" if it does not say

	directory string // the name of its data directory; "" if it does not say

	// members are the ids of the members that it knows; toldMembers is false if it does not say.
	members     []string
	toldMembers bool
}

// standsAs is what a node thinks of another.
type standsAs uint64

const (
	asUnknown  standsAs = 0
	asMember   standsAs = 1
	asStranger standsAs = 2
	asOther    standsAs = 3 // with another data directory than it was met with
)

func (f facts) append(buf []byte) []byte {
	start := len(buf)
	buf = frame.Begin(buf, frameFacts, 0)
	for _, s := range []string{f.id, f.addrs.Plain, f.addrs.Sentinel, f.addrs.Cluster, f.runID} {
		buf = codec.AppendStr(buf, s)
	}
	buf = codec.AppendStr(binary.AppendUvarint(buf, f.applied), f.cluster)
	buf = codec.AppendStr(binary.AppendUvarint(buf, uint64(f.you)), f.peer)
	buf = codec.AppendStr(buf, f.directory)
	if f.toldMembers {
		buf = binary.AppendUvarint(buf, uint64(len(f.members)))
		for _, id := range f.members {
			buf = codec.AppendStr(buf, id)
		}
		if f.addrs.TLSPlain+f.addrs.TLSSentinel+f.addrs.TLSCluster != "" {
			for _, s := range []string{f.addrs.TLSPlain, f.addrs.TLSSentinel, f.addrs.TLSCluster} {
				buf = codec.AppendStr(buf, s)
			}
		}
	}
	return frame.End(buf, start)
}

func readFacts(r *bufio.Reader) (facts, error) {
	fr, err := frame.ReadShort(r)
	if err != nil {
		return facts{}, err
	}
	var f facts
	in := codec.Reader{B: fr.Body}
	for _, s := range []*string{&f.id, &f.addrs.Plain, &f.addrs.Sentinel, &f.addrs.Cluster, &f.runID} {
		*s = string(in.Bytes())
	}
	applied, size := binary.Uvarint(in.B)
	if fr.Kind != frameFacts || in.Bad || size <= 0 || f.id == "" {
		return facts{}, frame.ErrMalformed
	}
	f.applied = applied
	if in.B = in.B[size:]; len(in.B) > 0 {
		f.cluster, f.you, f.peer = string(in.Bytes()), standsAs(in.Uvarint()), string(in.Bytes())
	}
	if len(in.B) > 0 {
		f.directory = string(in.Bytes())
	}
	if len(in.B) > 0 {
		f.toldMembers = true
		for n := in.Count(1); n > 0 && !in.Bad; n-- {
			f.members = append(f.members, string(in.Bytes()))
		}
	}
	if len(in.B) > 0 {
		f.addrs.TLSPlain, f.addrs.TLSSentinel, f.addrs.TLSCluster = string(in.Bytes()), string(in.Bytes()), string(in.Bytes())
	}
	if in.Bad || !f.sane() {
		return facts{}, frame.ErrMalformed
	}
	return f, nil
}

// sane reports whether facts can come from a node. It clears client addresses that cannot be addresses:
// clients are sent there, and Sentinel's texts name them, where a blank ends a word.
func (f *facts) sane() bool {
	for _, addr := range []*string{&f.addrs.Plain, &f.addrs.Sentinel, &f.addrs.Cluster, &f.addrs.TLSPlain, &f.addrs.TLSSentinel, &f.addrs.TLSCluster} {
		if roster.CheckAddress(*addr) != nil {
			*addr = ""
		}
	}
	if f.peer != "" && roster.CheckAddress(f.peer) != nil {
		return false
	}
	for _, id := range f.members {
		if roster.CheckID(id) != nil {
			return false
		}
	}
	for _, word := range []string{f.runID, f.cluster, f.directory} {
		if word != "" && roster.CheckID(word) != nil {
			return false
		}
	}
	return roster.CheckID(f.id) == nil && f.applied < roster.Highest && len(f.members) <= roster.MaxMembers
}

// serveFacts answers a peer that asks how this node is.
func (n *Node) serveFacts(conn net.Conn) {
	defer conn.Close()
	select {
	case <-n.opened:
	case <-n.ctx.Done():
		return
	}
	r := newFactsReader(conn)
	for n.ctx.Err() == nil {
		// A peer that says nothing for so long uses another connection by now.
		idle := time.AfterFunc(2*beatTimeout, func() { conn.Close() })
		f, err := readFacts(r)
		if err == nil {
			peerport.Greets(conn)
			n.note(f, false)
			_, err = conn.Write(n.answerTo(f).append(nil))
		}
		if !idle.Stop() || err != nil {
			return
		}
	}
}

// answerTo returns what this node tells a node that has sent its facts f.
func (n *Node) answerTo(f facts) facts {
	answer := n.facts()
	if answer.you = n.standing(f); answer.you != asMember || f.directory == "" {
		answer.directory = ""
	}
	answer.members, answer.toldMembers = n.memberIDs(), true
	return answer
}

// memberIDs returns the ids of the members that this node knows.
func (n *Node) memberIDs() (ids []string) {
	members, err := n.cons.Members()
	if err != nil {
		return nil
	}
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

// discover keeps an eye on the other members until the node closes.
func (n *Node) discover() {
	defer n.work.Done()
	asked := map[string]askedPeer{}
	beat := time.NewTicker(beatPeriod)
	defer beat.Stop()
	for {
		n.attend(asked)
		n.look()
		select {
		case <-n.ctx.Done():
			return
		case <-beat.C:
		case <-n.disc.moved:
		}
	}
}

// askedPeer is a member that is being asked.
type askedPeer struct {
	addr string
	stop context.CancelFunc
}

// attend starts asking new members and stops asking former ones.
func (n *Node) attend(asked map[string]askedPeer) {
	known := n.census()
	if known == nil {
		return // Raft is being stopped
	}
	for id, p := range asked {
		if known[id] != p.addr {
			p.stop()
			delete(asked, id)
		}
	}
	for id, addr := range known {
		if _, is := asked[id]; is {
			continue
		}
		ctx, cancel := context.WithCancel(n.ctx)
		asked[id] = askedPeer{addr: addr, stop: cancel}
		n.work.Add(1)
		go func() {
			defer n.work.Done()
			n.askPeer(ctx, addr)
		}()
	}
}

// askPeer asks one member until ctx ends.
func (n *Node) askPeer(ctx context.Context, addr string) {
	for ctx.Err() == nil {
		if conn, err := n.cfg.peers.Dial(addr, peerport.ProtoFacts, peerport.DialTimeout); err == nil {
			n.askOn(ctx, conn)
		}
		select {
		case <-ctx.Done():
		case <-time.After(beatPeriod):
		}
	}
}

// askOn asks on one connection until it fails.
func (n *Node) askOn(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	beat := time.NewTicker(beatPeriod)
	defer beat.Stop()
	r := newFactsReader(conn)
	for {
		timer := time.AfterFunc(beatTimeout, func() { conn.Close() })
		f, err := exchange(conn, r, n.facts())
		timer.Stop()
		if err != nil {
			return
		}
		n.note(f, true)
		n.disowned(f)
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
	}
}

func newFactsReader(conn net.Conn) *bufio.Reader { return bufio.NewReaderSize(conn, 512) }

func exchange(conn net.Conn, r *bufio.Reader, own facts) (facts, error) {
	if _, err := conn.Write(own.append(nil)); err != nil {
		return facts{}, err
	}
	return readFacts(r)
}
