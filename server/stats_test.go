package server

import (
	"fmt"
	"strings"
	"testing"

	"lockstep/store"
)

// A script invents error codes without end and without a blank; what is counted stays small.
func TestInventedErrorCodes(t *testing.T) {
	st := newStats(store.NewTable(), &params{})
	for i := range 10 * maxErrorCodes {
		st.failed(nil, fmt.Sprint(i)+strings.Repeat("x", 1<<20))
	}
	if len(st.errors) != maxErrorCodes {
		t.Errorf("%d codes are counted, want %d", len(st.errors), maxErrorCodes)
	}
	for code := range st.errors {
		if len(code) > maxErrorCode {
			t.Fatalf("a code of %d bytes is kept, at most %d may be", len(code), maxErrorCode)
		}
	}
}
