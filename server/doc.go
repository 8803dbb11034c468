// Package server is what clients talk to: sockets, sessions, the checks that
// Redis makes before a command runs, in its order, and the encoding of replies.
//
// A byte's way: listener → guard (turns whatever arrives into well-formed
// commands, or ends the connection in Redis's words) → redcon's reader → one
// handler call per pipeline (dispatch.go) → a session handler, for what this
// node answers itself, or Backend.Submit for everything else → encode.go →
// outbox → socket.
//
// On Linux neither redcon nor a goroutine for each connection is in that way:
// an event loop (loop_linux.go) reads, parses with the same guard, submits what
// all connections have sent at once, and writes the replies. Commands that may
// wait are run by a goroutine as elsewhere.
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
