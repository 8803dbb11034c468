// Package wire has the lean clients of the load generator: one for RESP, and one for the part of ZooKeeper's protocol that a lock
// needs. Clients and measured servers share one machine, so a client takes as little CPU time as it can. The clients count the
// bytes that they send and receive. Dial counts the bytes of any other client.
package wire
