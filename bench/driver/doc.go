// Package driver is lockstep-bench: it starts the peers, has them measured in
// interleaved rounds, and reports.
package driver
