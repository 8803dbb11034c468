//go:build race

package cluster

// underRace tells tests that the race detector runs, so that everything takes ten times as long.
const underRace = true
