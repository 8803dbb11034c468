// Package peers starts and stops the systems that are measured: Redis in several forms, Redlock, etcd, ZooKeeper and lockstep. Each
// has its own directory and its own ports of the loopback interface. The package also knows how a client takes a lock from each
// system, and measures how much of the machine the servers use.
//
// Where a system leaves a choice, the package chooses what is best for that system. Clients connect to the leader, unless a case
// sends them elsewhere. etcd's locks share the lease of their session. WAIT follows only locks, not unlocks. Redlock's client sends
// to all of its servers at the same time.
package peers
