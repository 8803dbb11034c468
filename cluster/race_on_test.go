//go:build race

package cluster

// underRace tells tests that everything takes ten times as long.
const underRace = true
