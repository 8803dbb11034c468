// Package cluster makes a node a member of a replicated lock server: it puts
// client requests in order, has the leader evaluate them once, replicates what
// they wrote, and answers when a majority has the writes on disk.
//
// What a node keeps on its disk is the work of package datadir (internal/datadir).
//
// # Lock order
//
// Most locks guard one structure each, and their holder takes no other lock. So such a lock may be taken under any
// lock. The other locks are taken in this order, the left one first:
//
//	raftfsm.FSM → fair.Inbox          the evaluation looks at the waiting requests
//	raftfsm.FSM → blockRegistry.mu    a note of a served command is read while its entry is applied
//	raftfsm.FSM → locks of server     server/doc.go names the order of these
//	raftfsm.FSM → longScript.mu       a script begins or ends in the evaluation
//	longScript.mu → fair.Inbox        what waits behind a long script is answered BUSY
//	peers.Watcher.mu → Node.mu        the watcher asks who leads
//	peerConn.mu → router.mu           a check of a silent peer asks whether this node leads
//
// A goroutine holds none of them while it proposes an entry or waits for a disk or a peer.
package cluster
