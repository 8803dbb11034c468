package bridge

import (
	"fmt"

	"github.com/lockstep-io/lockstep/store"
)

// These are the errors that clients see.
const (
	errDown     store.Error = "CLUSTERDOWN The old Redis of --bridge cannot be reached, and nobody here holds this key; the command was not executed, try again"
	errUnknown  store.Error = "INDETERMINATE The old Redis of --bridge did not answer in time; the command may have been executed there"
	errWatch    store.Error = "ERR WATCH does not work while this node has --bridge: the old Redis would not know of it. Use a script"
	errOlder    store.Error = "ERR --bridge does not work while a node of the cluster runs version 0.1.0: upgrade all nodes first"
	errManyKeys store.Error = "ERR while this node has --bridge, one command or transaction may name 1000 keys"
	errWaits    store.Error = "ERR this command cannot wait while this node has --bridge"
)

func errNative(name string) store.Error {
	return store.Error(fmt.Sprintf("ERR %s does not work while this node has --bridge, because the old Redis does not know it: use SET key owner NX PX until all clients have moved", name))
}

func errWhole(name string) store.Error {
	return store.Error(fmt.Sprintf("ERR %s does not work while this node has --bridge, because it changes keys of clients that have not moved: run it on the old Redis", name))
}

func errRefused(text string) store.Error {
	return store.Error(fmt.Sprintf("ERR the old Redis of --bridge has refused the command: %s", text))
}
