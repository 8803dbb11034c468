// Package call defines what a session submits to the leader: commands and transactions. It encodes and decodes them for other nodes, and
// estimates their cost before they are run.
package call

import "github.com/lockstep-io/lockstep/store"

// Call is one command as a session submits it.
type Call struct {
	Cmd  *store.Command
	Args [][]byte // must not be changed after submission
	DB   int
	RESP int // protocol version of the client; it decides the form of what scripts reply

	Txn *Transaction // a WATCH or an EXEC, which is run instead of Cmd; nil for all other commands
	// Origin is the number of a client that wants no notice of its own changes, else 0.
	Origin uint64
	// Client is the number of the client that sends the command, for locks that it takes; 0: the node itself, or nobody knows.
	Client uint64

	// User names the user whose rights apply: it is a result of store.CallName, "" for the default user, store.Anonymous or
	// store.SystemUser.
	User string
	// Users is the version of the user list from which the client's node knows the user, to tell later users of that name; 0:
	// unknown.
	Users uint64
}

// Confirm is the command by which a node lets the leases of an executed request begin anew (cluster/grants.go). Only nodes
// resolve its name.
var Confirm = &store.Command{Name: ConfirmName, Flags: store.Write}

const ConfirmName = "\x00confirm"

// Look and Adopt are the commands by which a bridge reads and writes keys (cmd/lockstep/internal/bridge). As with Confirm, only nodes
// resolve their names.
var (
	Look  = &store.Command{Name: LookName, Flags: store.ReadOnly | store.Fast, Run: store.BridgeLook}
	Adopt = &store.Command{Name: AdoptName, Flags: store.Write | store.DenyOOM, Run: store.BridgeAdopt}
)

const (
	LookName  = "\x00look"
	AdoptName = "\x00adopt"
)

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

// OfAnotherNode reports whether a node has sent, in its own name, what it may send only for a user. Nobody may run it.
func (c *Call) OfAnotherNode() bool { return c.User == noUser }

// Exec is the Cmd of a transaction that another node has sent: the encoding does not say which command the client gave.
var Exec = &store.Command{Name: "exec"}
