package store

import (
	"strings"
	"testing"
)

// TestForgetLetsGoOfLargeWrites: when large writes have been copied, Forget makes the write set drop their memory.
func TestForgetLetsGoOfLargeWrites(t *testing.T) {
	txn := New().Begin(Time{Lease: 1}, 1, Env{})
	txn.Publish(Channel, "c", strings.Repeat("x", 2*keepWrites))
	txn.Writes().Forget()
	if b := txn.Writes().Bytes(); cap(b) > keepWrites {
		t.Errorf("%d bytes are kept", cap(b))
	}
}
