package cluster

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"lockstep/cluster/internal/frame"
	"lockstep/cluster/internal/roster"
	"lockstep/store/codec"
)

// A forwarding connection begins with a greeting in each direction:
//
//	+--------+---------+--------+--------+--------------------+----------+
//	| "LKST" | version | minor  | str id | str client address | str more |
//	|        | 1 byte  | 1 byte |        |                    |          |
//	+--------+---------+--------+--------+--------------------+----------+
//
// Nodes of different versions do not forward to each other: their frames may not mean the same. A minor
// version adds what a node of an earlier minor can do without. That may be fields in "more": a node skips
// the fields that it does not know. Or it may be frames: a node does not send them to a peer of an
// earlier minor. So a cluster whose nodes are upgraded one after the other serves all clients all the
// while, unless the version itself has changed. Versions up to 4 had neither a minor nor "more".
const (
	wireMagic   = "LKST"
	wireVersion = 5
	wireMinor   = 1 // a call says by which version of the user list its node knows the user
)

// errPeerVersion: two nodes run versions that cannot forward to each other. Raft
// goes on between them; commands wait until the leader is of this version.
var errPeerVersion = errors.New("cluster: a peer runs another version of lockstep")

// versionError is errPeerVersion in detail.
type versionError struct{ theirs, own byte }

func (v versionError) older() bool   { return v.theirs < v.own }
func (v versionError) Unwrap() error { return errPeerVersion }

func (v versionError) Error() string {
	which := "this node"
	if v.older() {
		which = "the other node"
	}
	return fmt.Sprintf("%v: it speaks version %d, this program version %d; upgrade %s", errPeerVersion, v.theirs, v.own, which)
}

// wireSpeaks is the version of the protocol that a node speaks. A test may let a node speak a later one.
type wireSpeaks struct{ version, minor byte }

// greeting is what two nodes tell each other first.
type greeting struct {
	speaks wireSpeaks
	id     string
	client string // RESP address for clients
	more   string // fields of later minor versions
}

func (g greeting) append(buf []byte) []byte {
	buf = append(buf, wireMagic...)
	buf = append(buf, g.speaks.version, g.speaks.minor)
	buf = codec.AppendStr(buf, g.id)
	buf = codec.AppendStr(buf, g.client)
	return codec.AppendStr(buf, g.more)
}

// read reads the greeting of a peer to a node that speaks own.
func (own wireSpeaks) read(r *bufio.Reader) (greeting, error) {
	var head [len(wireMagic) + 1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return greeting{}, err
	}
	if string(head[:len(wireMagic)]) != wireMagic {
		return greeting{}, frame.ErrMalformed
	}
	g := greeting{speaks: wireSpeaks{version: head[len(wireMagic)]}}
	if v := g.speaks.version; v != own.version {
		return greeting{}, versionError{v, own.version}
	}
	var err error
	if g.speaks.minor, err = r.ReadByte(); err != nil {
		return greeting{}, err
	}
	for _, s := range []*string{&g.id, &g.client, &g.more} {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > roster.MaxText {
			return greeting{}, frame.ErrMalformed
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return greeting{}, err
		}
		*s = string(b)
	}
	return g, nil
}
