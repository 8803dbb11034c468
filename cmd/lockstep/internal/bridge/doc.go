// Package bridge lets clients move from a running Redis to lockstep one by one, while others still use that Redis ("the old Redis").
//
// A client that has moved sends its commands to a node with --bridge. The node runs each command on the old Redis first. If the command
// changes something there, the node also runs it here, under Raft. So a client that has moved and one that has not exclude each other,
// because both ask the old Redis. And two clients that have moved exclude each other even if the old Redis loses a lock, because both also
// ask lockstep.
//
// Which side answers:
//
//	the old Redis        | lockstep                         | the client gets
//	---------------------+----------------------------------+--------------------------------------------------------------
//	changed nothing      | is not asked                     | the old reply
//	changed something    | changed something                | the old reply
//	changed something    | a lock of another owner is there | the reply of lockstep: the old Redis has lost that lock. The node
//	                     |                                  | takes back what the command changed there
//	has lost a lock that | decides alone about that lock    | the reply of lockstep
//	lockstep has         |                                  |
//	cannot be reached    | decides alone about locks that   | for all other keys: CLUSTERDOWN, or INDETERMINATE if the command
//	                     | its clients hold                 | may have reached the old Redis
//
// A node remembers each lock that a command by way of it has taken (hold). Once a second, it compares these locks with the old Redis. So it
// also finds lost locks that nobody asks for. It counts each lost lock once, and puts the lock back unless somebody else has taken it.
//
// Only locks that are strings or hashes are protected like this. For other keys, the old Redis decides.
package bridge
