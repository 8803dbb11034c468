// Package bench measures lockstep beside its peers. It speaks only RESP to
// what it measures.
package bench
