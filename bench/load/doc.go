// Package load makes the load of a measurement, and records what the clients saw. A number of clients carry out a workload on any
// peer, each in a closed loop or all together at a given rate.
package load
