// Package driver is the work of lockstep-bench: it starts the peers, measures each of them in every round, and reports.
package driver
