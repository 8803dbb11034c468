// Package history says whether what clients saw of a lock server can be true.
// Every operation is written down with the instants between which it must have
// taken effect; for each key porcupine looks for an order of the operations that
// these instants allow and in which every reply is right.
//
// A lost reply, or a reply INDETERMINATE, leaves an operation whose outcome is
// unknown: it may have taken effect at any time since it was sent, or may do so
// after everything else, which is as good as never. A refusal that
// promises "not executed" is not part of a history at all: if the operation took
// effect all the same, no order explains what others see.
//
// Published messages have no state; CheckMessages compares what all subscribers
// heard.
package history
