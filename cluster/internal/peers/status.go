package peers

import (
	"bufio"
	"encoding/binary"
	"net"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/fair"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
	"github.com/lockstep-io/lockstep/store/codec"
)

// Every node asks every other member for its status once in Period, so that clients learn from any node which others are up. A
// connection begins with 'D'; each question and each answer is a frame with the sender's status.
//
//	kind 1  status  str id | str plain | str sentinel | str cluster |
//	                str run id | uvarint applied | str name of the cluster |
//	                you | str peer address of the sender | str data directory |
//	                n, n times str id of a member |
//	                str plain with TLS | str sentinel with TLS | str cluster with TLS |
//	                n, n times (str user | int halvings | int rush | int milliseconds) |
//	                uvarint room | str version | uvarint wish (Wish.code)
//
// The fields plain, sentinel and cluster are addresses for clients (Addresses). The field you is what the answering node thinks
// of the asker: 0 it does not know, 1 a member, 2 no member, 3 a member's id with another data directory. Frames, integers and
// str are as in cluster/internal/forward/wire.go.
//
// A reader skips what follows the fields that it knows. A frame may end after applied, the peer address, the data directory, the
// members, the TLS addresses or the room.
//
// A node names its data directory only to members: another node that knows the name could pass for it. The users (fair.Overrun)
// and what follows are only in an answer to a member that has named its own directory.
const (
	FrameStatus = 1

	// Period is how often a node asks each other member for its status.
	Period = 250 * time.Millisecond
	// Timeout is how long a peer may take to answer before it is asked on a new connection.
	Timeout = time.Second
)

// Status is what a node tells the others of itself.
type Status struct {
	ID      string
	Addrs   Addresses
	RunID   string
	Applied uint64
	Cluster string   // name of the cluster it belongs to; "" if it does not know
	You     Standing // in an answer: what it thinks of the node that asks
	Peer    string   // its peer address; "" if it does not say

	Directory string // the name of its data directory; "" if it does not say

	// Members are the ids of the members that the node knows; ToldMembers is false if the status has no list of members.
	Members     []string
	ToldMembers bool

	// Overruns are the users whose work gets less time than usual on that node (fair.Limits).
	Overruns []fair.Overrun

	// Room is 1 more than the length of the longest entry for which the node's disk has room; 0 if it has room for any entry.
	Room int64

	Version string // of the program; "" if the status does not say
	Wish    Wish

	asOf int64 // not sent; in an answer: how many of this node's proposed bytes had a known outcome when it asked
}

// Standing is what a node thinks of another.
type Standing uint64

const (
	Unknown  Standing = 0
	Member   Standing = 1
	Stranger Standing = 2
	Other    Standing = 3 // it has the id of a member, but not the data directory with which that member was met
)

func (f Status) Append(buf []byte) []byte {
	start := len(buf)
	buf = frame.Begin(buf, FrameStatus, 0)
	for _, s := range []string{f.ID, f.Addrs.Plain, f.Addrs.Sentinel, f.Addrs.Cluster, f.RunID} {
		buf = codec.AppendStr(buf, s)
	}
	buf = codec.AppendStr(binary.AppendUvarint(buf, f.Applied), f.Cluster)
	buf = codec.AppendStr(binary.AppendUvarint(buf, uint64(f.You)), f.Peer)
	buf = codec.AppendStr(buf, f.Directory)
	if f.ToldMembers {
		buf = binary.AppendUvarint(buf, uint64(len(f.Members)))
		for _, id := range f.Members {
			buf = codec.AppendStr(buf, id)
		}
		if f.Addrs.TLSPlain+f.Addrs.TLSSentinel+f.Addrs.TLSCluster != "" || f.tellsMore() {
			for _, s := range []string{f.Addrs.TLSPlain, f.Addrs.TLSSentinel, f.Addrs.TLSCluster} {
				buf = codec.AppendStr(buf, s)
			}
		}
		buf = f.appendOverruns(buf)
	}
	return frame.End(buf, start)
}

// tellsMore reports whether the status has fields that only members get.
func (f *Status) tellsMore() bool {
	return len(f.Overruns) > 0 || f.Room > 0 || f.Version != "" || f.Wish != Wish{}
}

func (f *Status) appendOverruns(buf []byte) []byte {
	if !f.tellsMore() {
		return buf
	}
	buf = binary.AppendUvarint(buf, uint64(len(f.Overruns)))
	for _, o := range f.Overruns {
		buf = codec.AppendStr(buf, o.User)
		for _, n := range []int{o.Halvings, o.Rush, int(o.Spent.Milliseconds())} {
			buf = binary.AppendUvarint(buf, uint64(n))
		}
	}
	tellsWish := f.Version != "" || f.Wish != Wish{}
	if f.Room > 0 || tellsWish {
		buf = binary.AppendUvarint(buf, uint64(f.Room))
	}
	if tellsWish {
		buf = binary.AppendUvarint(codec.AppendStr(buf, f.Version), f.Wish.code())
	}
	return buf
}

func Read(r *bufio.Reader) (Status, error) {
	fr, err := frame.ReadShort(r)
	if err != nil {
		return Status{}, err
	}
	var f Status
	in := codec.Reader{B: fr.Body}
	for _, s := range []*string{&f.ID, &f.Addrs.Plain, &f.Addrs.Sentinel, &f.Addrs.Cluster, &f.RunID} {
		*s = string(in.Bytes())
	}
	applied, size := binary.Uvarint(in.B)
	if fr.Kind != FrameStatus || in.Bad || size <= 0 || f.ID == "" {
		return Status{}, frame.ErrMalformed
	}
	f.Applied = applied
	if in.B = in.B[size:]; len(in.B) > 0 {
		f.Cluster, f.You, f.Peer = string(in.Bytes()), Standing(in.Uvarint()), string(in.Bytes())
	}
	if len(in.B) > 0 {
		f.Directory = string(in.Bytes())
	}
	if len(in.B) > 0 {
		f.ToldMembers = true
		for n := in.Count(1); n > 0 && !in.Bad; n-- {
			f.Members = append(f.Members, string(in.Bytes()))
		}
	}
	if len(in.B) > 0 {
		f.Addrs.TLSPlain, f.Addrs.TLSSentinel, f.Addrs.TLSCluster = string(in.Bytes()), string(in.Bytes()), string(in.Bytes())
	}
	if len(in.B) > 0 {
		for n := in.Count(1); n > 0 && !in.Bad; n-- {
			f.Overruns = append(f.Overruns, fair.Overrun{User: string(in.Bytes()), Halvings: in.Int(), Rush: in.Int(), Spent: time.Duration(in.Int()) * time.Millisecond})
		}
	}
	if len(in.B) > 0 {
		f.Room = int64(in.Uvarint())
	}
	if len(in.B) > 0 {
		f.Version = string(in.Bytes())
		wish, ok := wishOf(in.Uvarint())
		f.Wish = wish
		in.Bad = in.Bad || !ok
	}
	if in.Bad || !f.sane() {
		return Status{}, frame.ErrMalformed
	}
	return f, nil
}

// sane reports whether an honest node can have sent f. It clears invalid client addresses: a blank in one would break the texts
// of Sentinel.
func (f *Status) sane() bool {
	for _, addr := range []*string{&f.Addrs.Plain, &f.Addrs.Sentinel, &f.Addrs.Cluster, &f.Addrs.TLSPlain, &f.Addrs.TLSSentinel, &f.Addrs.TLSCluster} {
		if roster.CheckAddress(*addr) != nil {
			*addr = ""
		}
	}
	if f.Peer != "" && roster.CheckAddress(f.Peer) != nil {
		return false
	}
	for _, id := range f.Members {
		if roster.CheckID(id) != nil {
			return false
		}
	}
	for _, word := range []string{f.RunID, f.Cluster, f.Directory, f.Version} {
		if word != "" && roster.CheckID(word) != nil {
			return false
		}
	}
	for _, o := range f.Overruns {
		if len(o.User) > roster.MaxText || max(o.Halvings, o.Rush) > 64 || o.Spent < 0 {
			return false
		}
	}
	return roster.CheckID(f.ID) == nil && f.Room >= 0 && f.Applied < roster.Highest && len(f.Members) <= roster.MaxMembers && len(f.Overruns) <= fair.ToldUsers
}

func NewReader(conn net.Conn) *bufio.Reader { return bufio.NewReaderSize(conn, 512) }

func Exchange(conn net.Conn, r *bufio.Reader, own Status) (Status, error) {
	if _, err := conn.Write(own.Append(nil)); err != nil {
		return Status{}, err
	}
	return Read(r)
}
