// Package raftfsm defines the format and meaning of a log entry and a snapshot, and the state
// machine that every node runs over them.
//
// Invariants:
//   - An entry takes effect only if it was evaluated on the state that it meets
//     (compare-and-append); every node decides this alike.
//   - Equal logs give byte-identical snapshots.
//   - Bytes that cannot be understood stop the node. Skipping them would make
//     its state differ from the others' for ever.
package raftfsm
