package forward

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
	"github.com/lockstep-io/lockstep/store/codec"
)

// A forwarding connection begins with a handshake in each direction:
//
//	+--------+---------+--------+--------+--------------------+----------+
//	| "LKST" | version | minor  | str id | str client address | str more |
//	|        | 1 byte  | 1 byte |        |                    |          |
//	+--------+---------+--------+--------+--------------------+----------+
//
// Nodes of different versions do not forward to each other: their frames may not mean the same. A minor version adds only what a node of
// an earlier minor can do without. New fields in "more" or at the end of a frame do no harm, because a node skips the fields that it does
// not know. New frames, and new fields of calls, are not sent to a peer of an earlier minor. So a cluster serves all clients while its
// nodes are upgraded one after the other, unless the version itself has changed. Versions up to 4 had neither a minor nor "more".
//
// Since minor 1, "more" begins with the Identity of the node:
//
//	str name of the cluster | str data directory
const (
	Magic = "LKST"
	Major = 5
	Minor = 1
)

// What minor versions have added. Version 0.1.0 speaks minor 0. Since minor 1 a call also carries the user list's version (call.Append).
const (
	MinorLeases    = 1 // the reply to heavy work says which leases the work has granted
	MinorKillUsers = 1 // a kill frame says by which version of the users its node has checked the client's rights
	MinorIdentity  = 1 // a node names its cluster and its data directory (Identity)
	MinorWaited    = 1 // a blocking command that is sent again says for how long it has waited
)

// ErrVersion: two nodes run versions that cannot forward to each other. Raft
// goes on between them; commands wait until a node of this version leads.
var ErrVersion = errors.New("cluster: a peer runs another version of lockstep")

// VersionError is an ErrVersion that names both versions.
type VersionError struct{ theirs, own byte }

func (v VersionError) Older() bool   { return v.theirs < v.own }
func (v VersionError) Unwrap() error { return ErrVersion }

func (v VersionError) Error() string {
	which := "this node"
	if v.Older() {
		which = "the other node"
	}
	return fmt.Sprintf("%v: it speaks version %d, this program version %d; upgrade %s", ErrVersion, v.theirs, v.own, which)
}

// Version is the version of the protocol that a node speaks. A test may let a node speak a later one.
type Version struct{ Major, Minor byte }

// Handshake is what two nodes tell each other first.
type Handshake struct {
	Speaks Version
	ID     string
	Client string // RESP address for clients
	More   string // fields of later minor versions
}

// Identity distinguishes a node from all others, even from a node of another cluster with the same id.
type Identity struct {
	Cluster   string // name of the cluster; "" if the node does not know it
	Directory string // name of the data directory; "" if the node does not say
}

// More returns the field More of a handshake that contains the identity.
func (i Identity) More() string {
	return string(codec.AppendStr(codec.AppendStr(nil, i.Cluster), i.Directory))
}

// Identity returns the identity that the handshake contains; a zero one if it contains none.
func (h Handshake) Identity() (Identity, error) {
	if h.Speaks.Minor < MinorIdentity || h.More == "" {
		return Identity{}, nil
	}
	r := codec.Reader{B: []byte(h.More)}
	i := Identity{Cluster: string(r.Bytes()), Directory: string(r.Bytes())}
	if r.Bad {
		return Identity{}, frame.ErrMalformed
	}
	return i, nil
}

func (h Handshake) Append(buf []byte) []byte {
	buf = append(buf, Magic...)
	buf = append(buf, h.Speaks.Major, h.Speaks.Minor)
	buf = codec.AppendStr(buf, h.ID)
	buf = codec.AppendStr(buf, h.Client)
	return codec.AppendStr(buf, h.More)
}

// Read reads the handshake of a peer. It fails with a VersionError if the peer speaks another major version than this node.
func (own Version) Read(r *bufio.Reader) (Handshake, error) {
	var head [len(Magic) + 1]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return Handshake{}, err
	}
	if string(head[:len(Magic)]) != Magic {
		return Handshake{}, frame.ErrMalformed
	}
	h := Handshake{Speaks: Version{Major: head[len(Magic)]}}
	if v := h.Speaks.Major; v != own.Major {
		return Handshake{}, VersionError{v, own.Major}
	}
	var err error
	if h.Speaks.Minor, err = r.ReadByte(); err != nil {
		return Handshake{}, err
	}
	for _, s := range []*string{&h.ID, &h.Client, &h.More} {
		n, err := binary.ReadUvarint(r)
		if err != nil || n > roster.MaxText {
			return Handshake{}, frame.ErrMalformed
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(r, b); err != nil {
			return Handshake{}, err
		}
		*s = string(b)
	}
	return h, nil
}
