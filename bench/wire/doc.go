// Package wire has the clients of the load generator: RESP, the part of etcd's
// v3 API and the part of ZooKeeper's protocol that a lock needs. They are lean,
// because clients and measured servers share one machine, and they count what
// they send and receive.
package wire
