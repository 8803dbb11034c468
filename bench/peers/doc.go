// Package peers starts and stops what is measured: Redis in several forms,
// Redlock, etcd, ZooKeeper and lockstep, each in its own directory and on its
// own ports of the loopback interface. It also knows how a client takes a lock
// there, and measures what the servers use of the machine meanwhile.
//
// Where a peer leaves a choice, it is made in the peer's favour: clients speak to
// the leader, unless they are sent elsewhere; etcd's locks share their session's
// lease; WAIT follows locks alone, and not unlocks; Redlock's client sends to all
// of its servers at the same time.
package peers
