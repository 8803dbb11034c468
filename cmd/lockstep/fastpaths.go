package main

import (
	"fmt"
	"slices"
	"strings"
)

// These are the names of the fast paths: parts of a node that only make it faster. docs/performance-history.md says by how much.
const (
	eventLoops  = "event-loops"
	ioUring     = "io_uring"
	fastScripts = "fast-scripts"
	directIO    = "direct-io"
	slowMonitor = "slow-monitor"
)

var fastPaths = []string{eventLoops, ioUring, fastScripts, directIO, slowMonitor}

// withoutPaths is the value of --without: the names of the fast paths that a node does not take, separated by commas.
type withoutPaths string

func (w *withoutPaths) String() string { return string(*w) }

func (w *withoutPaths) Set(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(fastPaths, name) {
			return fmt.Errorf("want some of %s", strings.Join(fastPaths, ","))
		}
	}
	*w = withoutPaths(list)
	return nil
}

func (w withoutPaths) has(path string) bool {
	return slices.Contains(strings.Split(string(w), ","), path)
}
