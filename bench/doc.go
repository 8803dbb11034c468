// Package bench measures lockstep beside its peers. It speaks only RESP to
// what it measures, and has the client that the command line and the process
// tests speak it with.
package bench
