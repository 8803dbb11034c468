package server

import "testing"

// loopTests are those of TestOverTLS that need loops.
var loopTests = []func(*testing.T){
	TestLoopConversations, TestLoopHugePipeline, TestLoopSlowReaderKilled, TestLoopHalfClosed, TestLoopKillWhileWaiting, TestLoopShutdownDrains,
	TestLoopHeldUp, TestLoopMessages,
}
