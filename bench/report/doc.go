// Package report shows the results of a run as a table, as JSON and as a plot.
package report
