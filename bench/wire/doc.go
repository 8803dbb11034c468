// Package wire has the clients of the load generator: RESP, the part of etcd's
// v3 API and the part of ZooKeeper's protocol that a lock needs. They are lean,
// because what they take of the machine the measured servers do not have, and
// they count what they send and receive.
package wire
