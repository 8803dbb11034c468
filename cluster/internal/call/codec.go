package call

import (
	"encoding/binary"
	"strings"

	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// The encoding of calls that nodes send each other:
//
//	calls:        n, n times call
//	call:         db | resp | origin | argc | argc times str
//	transaction:  db | resp | origin | 0 | 1: WATCH, 0: EXEC | n, n times (db, str key,
//	              version) | calls
//
// Integers are uvarints, str is a uvarint length and bytes. The field resp is the protocol version plus flags: 4, if the user's
// name (str) follows, as for all but the default user; 8, if the version of the user list (Call.Users) follows that; 16, if the number of
// the client (Call.Client) follows that.

const (
	wireUser  = 4
	wireUsers = 8 // from minor version 1 on

	wireClient = 16 // from minor version 1 on
)

const (
	// asksVersion is a command that a node may send in its own name (ofNodes): it asks for the version of the users.
	asksVersion = "acl|load"
	// noUser is a name that no user can have, because it has a blank.
	noUser = "another node"
)

// Append encodes calls for a peer. The parameter minor is the minor version of the protocol that the peer speaks.
func Append(buf []byte, calls []Call, minor byte) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(calls)))
	for i := range calls {
		c := &calls[i]
		buf = binary.AppendUvarint(buf, uint64(c.DB))
		resp := c.RESP
		if c.User != "" {
			resp |= wireUser
		}
		users := c.User != "" && c.Users > 0 && minor >= 1
		if users {
			resp |= wireUsers
		}
		client := c.Client != 0 && minor >= 1
		if client {
			resp |= wireClient
		}
		buf = binary.AppendUvarint(buf, uint64(resp))
		if c.User != "" {
			buf = codec.AppendStr(buf, c.User)
		}
		if users {
			buf = binary.AppendUvarint(buf, c.Users)
		}
		if client {
			buf = binary.AppendUvarint(buf, c.Client)
		}
		buf = binary.AppendUvarint(buf, c.Origin)
		if c.Txn != nil {
			buf = c.Txn.append(append(buf, 0), minor)
			continue
		}
		buf = binary.AppendUvarint(buf, uint64(len(c.Args)))
		for _, a := range c.Args {
			buf = codec.AppendStr(buf, a)
		}
	}
	return buf
}

// Read decodes calls; their arguments point into body.
func Read(body []byte, table *store.Table) ([]Call, error) {
	calls, _, err := ReadFirst(body, table)
	return calls, err
}

// ReadFirst does what Read does, and also returns the bytes behind the calls.
func ReadFirst(body []byte, table *store.Table) (calls []Call, rest []byte, err error) {
	r := codec.Reader{B: body}
	calls = make([]Call, 0, 4)
	for n := r.Count(1); n > 0 && !r.Bad; n-- {
		c, err := readCall(&r, table, false)
		if err != nil {
			return nil, nil, err
		}
		calls = append(calls, c)
	}
	if r.Bad || len(calls) == 0 {
		return nil, nil, frame.ErrMalformed
	}
	return calls, r.B, nil
}

// ofNodes reports whether nodes send a command in their own name: the question for the version, and messages about locks.
func ofNodes(c *Call) bool {
	switch c.Cmd.FullName() {
	case asksVersion:
		return len(c.Args) >= 3 && string(c.Args[2]) == "version"
	case "publish":
		return len(c.Args) == 3 && strings.HasPrefix(string(c.Args[1]), store.LockChannels)
	}
	return false
}

// readCall decodes a call. A call of a transaction (inside) is no transaction: otherwise the depth of the recursion would be the peer's
// choice.
func readCall(r *codec.Reader, table *store.Table, inside bool) (Call, error) {
	c := Call{DB: r.Int(), RESP: r.Int()}
	if c.RESP&wireUser != 0 {
		c.RESP &^= wireUser
		c.User = string(r.Bytes())
	}
	if c.RESP&wireUsers != 0 {
		c.RESP &^= wireUsers
		c.Users = r.Uvarint()
		r.Bad = r.Bad || c.User == "" // no node sends a version for the default user
	}
	if c.RESP&wireClient != 0 {
		c.RESP &^= wireClient
		c.Client = r.Uvarint()
	}
	c.Origin = r.Uvarint()
	argc := r.Count(1)
	if r.Bad || c.DB >= store.Databases || argc == 0 && inside {
		return Call{}, frame.ErrMalformed
	}
	var err error
	if argc == 0 {
		c.Cmd = Exec
		c.Txn, err = readTransaction(r, table)
		return c, err
	}
	c.Args = make([][]byte, argc)
	for i := range c.Args {
		c.Args[i] = r.Bytes()
	}
	if r.Bad {
		return Call{}, frame.ErrMalformed
	}
	if string(c.Args[0]) == ConfirmName && argc == 2 {
		c.Cmd = Confirm
		return c, nil
	}
	switch string(c.Args[0]) {
	case LookName:
		c.Cmd = Look
		return c, nil
	case AdoptName:
		c.Cmd = Adopt
		return c, nil
	}
	var ok bool
	if c.Cmd, ok = table.Resolve(c.Args); !ok || c.Cmd.Run == nil {
		c.Cmd = Unknown
	}
	if c.User == store.SystemUser && !ofNodes(&c) {
		c.User = noUser
	}
	return c, nil
}
