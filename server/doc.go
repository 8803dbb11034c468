// Package server is what clients talk to: sockets, sessions, the checks that
// Redis makes before a command runs, in its order, and the encoding of replies.
//
// On Linux, event loops (loop_linux.go) serve every connection of a TCP listener,
// with TLS or without it: with a goroutine for each connection every command costs
// a read that finds nothing, parking and waking threads, and what many clients send
// at once reaches the backend piece by piece. redcon serves all connections on
// systems without epoll, and on Linux only those that tests make: of a listener
// that is not TCP, of ServeConn, and with Config.Loops < 0. TestTranscripts and
// TestTranscriptsWithoutLoops play the same transcripts on each of the two ways.
//
// The way of a command with redcon: listener → guard (turns whatever arrives
// into well-formed commands, or ends the connection in Redis's words) → redcon's
// reader → one handler call per pipeline (dispatch.go) → a session handler, for
// what this node answers itself, or Backend.Submit for everything else →
// encode.go → outbox → socket. A loop reads and parses with the same guard,
// submits what all of its connections have sent at once, and writes the replies;
// a goroutine runs the commands that may wait.
//
// A server has one keyspace and up to three faces (face.go), each at a listener of
// its own: plain Redis, and a node of a Redis Cluster, are one Server; a Sentinel
// (sentinel.go) is a Server beside it with a command table, clients and channels
// of its own. What they tell of the other nodes comes from Backend.Topology.
//
// Invariants:
//   - Replies leave in the order of the commands, and a frame is never torn:
//     everything that is sent goes through the session's outbox.
//   - Publishing never waits for a client. One that reads too slowly is
//     disconnected when its output passes the limits of its class.
//   - The package does not ask for the time; Config.Clock gives it.
//   - Only this package imports redcon.
//
// Lock order: Server.mu → Hub.mu → outbox.mu → fdConn.mu; session.mu and
// loop.mu are leaves.
package server
