// Package lock runs a command while it holds a lock of a server: `lockstep lock`, which is flock(1) over the network.
//
// What holds at every moment: the command's process group is dead before the lease of the lock is over, by a clock that no jump of the
// wall clock moves and that counts on while the machine is asleep. A lease counts from the moment before its request was sent. Two
// processes see to it, each by itself: this one, and a guard (guard.go), in case this one is stopped or killed.
//
//	lock.go      takes the lock, runs the command, ends the lock: the order of all steps
//	keeper.go    renews the lease, and ends the command in time
//	remote.go    the commands of the lock, as lockstep and as Redis have them
//	servers.go   several addresses, of which one answers
//	child.go     the command's process group, and the gate at which the command waits until its guard knows the group
//	guard.go     the guard's own process
package lock
