// Package wire has the lean clients of the load generator: RESP, and the part of ZooKeeper's protocol that a lock
// needs. Clients and measured servers share one machine, so a client takes as little CPU time as it can. The clients count
// what they send and receive. Dial counts for any other client.
package wire
