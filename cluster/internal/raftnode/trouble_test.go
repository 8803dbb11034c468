package raftnode

import (
	"slices"
	"testing"
)

// If each full node hands over to its first heir, the leadership comes to every voter.
func TestFullNodesHandOverToEachVoter(t *testing.T) {
	members := []Member{{ID: "n1", Voter: true}, {ID: "n2", Voter: true}, {ID: "new"}, {ID: "n3", Voter: true}, {ID: "n4", Voter: true}}
	led := []string{"n2"}
	for range 3 {
		led = append(led, heirs(members, led[len(led)-1])[0])
	}
	if want := []string{"n2", "n3", "n4", "n1"}; !slices.Equal(led, want) {
		t.Errorf("led by %v, want %v", led, want)
	}
	if got, want := heirs(members, "n3"), []string{"n4", "n1", "n2"}; !slices.Equal(got, want) {
		t.Errorf("the heirs of n3 are %v, want %v", got, want)
	}
}
