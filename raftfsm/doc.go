// Package raftfsm defines the format and meaning of a log entry and a snapshot, and the state
// machine that every node runs over them.
//
// Invariants:
//   - An entry takes effect only if it was evaluated on the very state to which it is
//     applied (compare-and-append). Every node decides this alike.
//   - Equal logs give byte-identical snapshots.
//   - If a node cannot decode or apply an entry, it stops. If it skipped the entry, its
//     state would differ from the state of the other nodes for ever.
//   - A snapshot that a node cannot decode does not change the state of the node.
package raftfsm
