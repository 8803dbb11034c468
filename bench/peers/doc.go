// Package peers starts and stops what is measured: Redis in several forms,
// Redlock, etcd, ZooKeeper and lockstep, each in its own directory and on its
// own ports of the loopback interface, and knows how a client takes a lock
// there, and what the servers used of the machine meanwhile.
//
// Where a peer leaves a choice, it is made in the peer's favour: clients speak to
// the leader, unless they are sent elsewhere; etcd's locks share their session's
// lease; WAIT and Redlock follow the lock alone, and their unlocks wait for
// nothing more.
package peers
