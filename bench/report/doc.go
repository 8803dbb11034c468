// Package report shows what was measured: as a table, as JSON and as a plot.
package report
