package cluster

import (
	"testing"
	"unsafe"
)

// A node computes the hash of the state once for each position in the log.
func TestStateHashBelongsToAPosition(t *testing.T) {
	n := openNode(t, dataConfig(t, t.TempDir()))
	defer closeNode(t, n)
	hash := func() (uint64, string) {
		index, hash, err := n.StateHash(nil)
		if err != nil {
			t.Fatal(err)
		}
		return index, hash
	}
	lines(t, n, "SET k v")
	at, first := hash()
	if again, second := hash(); again == at && unsafe.StringData(first) != unsafe.StringData(second) {
		t.Errorf("the hash at %d was made twice", at)
	}
	lines(t, n, "SET k w")
	if next, other := hash(); next == at || other == first {
		t.Errorf("after another write the hash is that of %d, %s", next, other)
	}
}
