// Package server serves clients: sockets, sessions, the checks that Redis makes before a command runs
// (in Redis's order), and the encoding of replies.
//
// On Linux, event loops (loop_linux.go) serve every connection of a TCP listener, with or without TLS. With a goroutine for
// each connection, every command would cost a read that finds nothing and the parking and waking of threads. Also, commands
// that many clients send at once would reach the backend one by one. redcon serves all connections on systems without epoll,
// and with --without event-loops (Config.Loops < 0). redcon also serves the connections of ServeConn, as the dashboard's are, and
// in tests listeners that are not TCP. TestTranscripts and TestTranscriptsWithoutLoops play the same transcripts with loops and with
// redcon.
//
// The path of a command with redcon:
//   - The guard of the connection makes well-formed commands of the received bytes, or ends the connection with Redis's error.
//   - redcon's reader gives each pipeline to one call of the handler (dispatch.go).
//   - The session itself answers a command that this node can answer. A command that may block goes to Backend.Block, and all others
//     go to Backend.SubmitPart.
//   - encode.go encodes the reply, and the outbox writes it to the socket.
//
// A loop reads and parses with the same guard, submits the commands of all its connections together, and writes the replies. A
// goroutine runs the commands that may wait.
//
// A node has one keyspace, and appears to clients in up to three forms: as a plain Redis, as a node of a Redis Cluster, and
// as a Sentinel. Each form has listeners of its own. One Server serves the first two forms (Face in face.go). The Sentinel
// (sentinel.go) is a second Server, with its own command table, clients and channels. Its clients with TLS have a third
// Server. All these servers learn of the other nodes from Backend.Topology.
//
// Invariants:
//   - Replies leave in the order of the commands, and a frame is never torn:
//     a session sends everything through its outbox.
//   - Publishing never waits for a client. A client that reads too slowly is
//     disconnected when its output passes the limits of its class.
//   - The package does not ask for the time; Config.Clock gives it.
//   - Only this package imports redcon.
//
// Lock order: tracker.mu → Server.mu → Hub.mu → outbox.mu → fdConn.mu. While a goroutine holds session.mu or loop.mu, it
// takes no other lock.
package server
