// Package history says whether what clients saw of a lock server can be true. It records each operation with the two instants
// between which the operation must have taken effect. For each key, porcupine looks for an order of the operations that these
// instants allow and in which every reply is right.
//
// After a lost reply, or a reply INDETERMINATE, the outcome of an operation is unknown: the operation may take effect at any time
// after it was sent. If it takes effect after everything else, that is as good as never. An operation that was refused with the
// promise "not executed" is not part of a history. If it took effect nevertheless, no order explains what others see.
//
// Published messages have no state; CheckMessages compares what all subscribers
// heard.
package history
