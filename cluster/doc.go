// Package cluster makes a node a member of a replicated lock server: it puts
// client requests in order, has the leader evaluate them once, replicates what
// they wrote, and answers when a majority has the writes on disk.
//
// What a node keeps on its disk is the work of package datadir (internal/datadir).
//
// # Lock order
//
// Most locks guard one structure each, and their holder takes no other lock. These locks may be taken at any time, also by a
// holder of other locks. The remaining locks are taken in this order, the left one of a line first:
//
//	raftfsm.FSM → fair.Inbox          the evaluation looks at the waiting requests
//	raftfsm.FSM → blockRegistry.mu    an entry is applied, and its note says that a blocking command was served
//	raftfsm.FSM → locks of server     server/doc.go names the order of these
//	raftfsm.FSM → longScript.mu       a script begins or ends in the evaluation
//	longScript.mu → fair.Inbox        what waits behind a long script is answered BUSY
//	peers.Watcher.mu → Node.mu        the watcher asks who leads
//	peerConn.mu → router.mu           a check of a silent peer asks whether this node leads
//
// A goroutine holds none of the locks above while it proposes an entry or waits for a disk or a peer.
package cluster
