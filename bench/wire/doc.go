// Package wire has the clients of the load generator: RESP, the part of etcd's
// v3 API and the part of ZooKeeper's protocol that a lock needs. They are lean,
// because the measured servers lack what the clients use of the machine, and
// they count what they send and receive.
package wire
