// Package load makes the load of a measurement: workloads, carried out by so
// many clients against any peer, in a closed loop or at a given rate, and what
// the clients saw of it.
package load
