// Package load makes the load of a measurement, and records what the clients saw
// of it: a number of clients carry out a workload against any peer, in a closed
// loop or at a given rate.
package load
