// Command chaos runs real lockstep nodes on a real network and real disks,
// breaks the nodes, the network, the disks and the clocks in every way it knows,
// singly and together, and lets clients of every kind use locks, registers,
// counters, lists, queues and messages meanwhile. What each client saw is
// checked afterwards: see package history.
//
//	go run ./conformance/chaos -for 60m
//
// builds a test build of lockstep, whose wall clock can be set for each node
// by itself and whose logs are short, and prints the seed that decides which faults come when. With
// -lockstep PATH that program is used as it is, and its clocks are left alone.
//
// It needs root, because each node gets a network namespace of its own; nothing
// of the machine's own network is touched, and nothing is left behind.
package main
