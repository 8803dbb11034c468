// Package store is the keyspace: sixteen databases of keys with types,
// deadlines and revisions, and the data commands that work on them.
//
// Commands never change the keyspace. They run against a [Txn], which reads the
// committed keys and buffers each write in two forms. Pending entries show the
// write to later commands of the same batch. A [WriteSet] is the list of
// primitive writes that goes into the log. [Store.Apply] puts a write
// set into the keyspace and is the only thing that changes it.
//
// Invariants:
//   - The package uses no clock, goroutine, lock or network: time is an argument,
//     and the caller serialises access. Only immutable values may be read
//     concurrently: a [Snapshot], a [Catalogue], [Accounts] and [Parameters].
//   - Apply is a function of the keyspace and the write set alone, so equal
//     logs give equal keyspaces; iteration order is the same on every node.
//   - The pending entries of a Txn and the keyspace are changed by the same
//     code (target.go), so what a command saw is what Apply produces.
package store
