// Command chaos runs real lockstep nodes on a real network and real disks. It breaks the nodes, the network, the disks and the
// clocks in many ways, one at a time and several at once. Meanwhile clients of every kind use locks, registers, counters, lists,
// queues and messages. Afterwards package history checks what each client saw.
//
//	go run ./conformance/chaos -for 60m
//
// The command builds lockstep for the test: each node has a wall clock that can be set, and short logs. It prints the seed, which
// decides which faults come when. With -lockstep PATH the nodes run that program as it is, and their clocks are left alone.
//
// The command needs root, because each node gets a network namespace of its own. It does not touch the machine's own network, and
// leaves nothing behind.
package main
