// Package call defines what a session submits to the leader: commands and transactions. It encodes and decodes them for other nodes, and
// estimates their cost before they are run.
package call

import "lockstep/store"

// Call is one command as a session submits it.
type Call struct {
	Cmd  *store.Command
	Args [][]byte // must not be changed after submission
	DB   int
	RESP int // protocol version of the client; it decides the form of what scripts reply

	Txn *Transaction // a WATCH or an EXEC, which is run instead of Cmd; nil for all other commands
	// Origin is the number of the client if that client does not want to be notified of its own changes; else it is 0. The write set
	// names the client by it.
	Origin uint64

	// User names the user whose rights apply: it is a result of store.CallName, "" for the default user, store.Anonymous or
	// store.SystemUser.
	User string
	// Users is the version of the user list from which the client's node knows this user. If the user has
	// been deleted since that version, the call must not get the rights of a new user of the same name. 0:
	// the version is unknown.
	Users uint64
}

// Confirm is the command by which a node asks the leader to let the leases of an executed request begin anew (cluster/grants.go). No
// client can call it, because only nodes resolve its name.
var Confirm = &store.Command{Name: ConfirmName, Flags: store.Write}

const ConfirmName = "\x00confirm"

// Unknown stands for a command that a peer of a later version has sent, and that this node does not know.
var Unknown = &store.Command{Name: "unknown", Flags: store.Write}

// UnknownName returns the name of the first command that this node does not know; the result any is false if this node knows all
// commands.
func (c *Call) UnknownName() (name []byte, any bool) {
	if c.Cmd == Unknown {
		return c.Args[0], true
	}
	if c.Txn != nil {
		for i := range c.Txn.Calls {
			if name, any = c.Txn.Calls[i].UnknownName(); any {
				break
			}
		}
	}
	return name, any
}

// OfAnotherNode reports whether another node has sent, in its own name, a call that it may send only for a user. Nobody has the rights
// for such a call.
func (c *Call) OfAnotherNode() bool { return c.User == noUser }

// Exec is the Cmd of a transaction that another node has sent: the encoding does not say which command the client gave.
var Exec = &store.Command{Name: "exec"}
