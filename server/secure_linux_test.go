package server

import "testing"

// loopTests are the tests of TestOverTLS that need event loops.
var loopTests = []func(*testing.T){
	TestLoopConversations, TestLoopHugePipeline, TestLoopSlowReaderKilled, TestLoopHalfClosed, TestLoopKillWhileWaiting, TestLoopShutdownDrains,
	TestLoopHeldUp, TestLoopMessages,
}

// TestSealedDropsWhatWasSent: a connection on which some ciphertext always waits does not keep the ciphertext that it has sent.
func TestSealedDropsWhatWasSent(t *testing.T) {
	c := &tlsConn{}
	for range 1000 {
		if _, err := (under{c: c}).Write(make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		c.sent = len(c.sealed) - 500
	}
	if n := len(c.sealed); n > 4000 {
		t.Errorf("%d bytes are kept for 500 that wait", n)
	}
}
