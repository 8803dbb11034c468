// Package history says whether what clients saw of a lock server can be true. It records each operation with the two instants
// between which the operation must have taken effect. For each key, porcupine looks for an order of the operations that these
// instants allow and in which every reply is right.
//
// After a lost reply, or a reply INDETERMINATE, the outcome of an operation is unknown: the operation may take effect at any time
// after it was sent. One that takes effect after all others is as good as one that never does. An operation whose error promises
// that it was not executed is not part of a history. If it was executed nevertheless, no order of the operations explains what
// other clients see.
//
// A published message has no state. CheckMessages compares what all subscribers heard.
package history
