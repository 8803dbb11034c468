// Package store is the keyspace: sixteen databases of keys with types,
// deadlines and revisions, and the data commands that work on them.
//
// Commands never change the keyspace. They run against a [Txn], which reads
// through to the committed keys and buffers what is written, twice: as pending
// entries that later commands of the same batch see, and as a [WriteSet], the
// list of primitive writes that goes into the log. [Store.Apply] puts a write
// set into the keyspace and is the only thing that changes it.
//
// Invariants:
//   - No clock, no goroutine, no lock, no network: time is an argument and the
//     caller serialises access. Only what is immutable may be read concurrently:
//     a [Snapshot], a [Catalogue], [Accounts] and [Parameters].
//   - Apply is a function of the keyspace and the write set alone, so equal
//     logs give equal keyspaces; iteration order is the same on every node.
//   - The pending entries of a Txn and the keyspace are changed by the same
//     code (target.go), so what a command saw is what Apply produces.
package store
