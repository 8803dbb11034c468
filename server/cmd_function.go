package server

import (
	"github.com/lockstep-io/lockstep/store"
)

func doFunctionKill(s *session, args [][]byte) store.Reply {
	return s.askScript(args, s.srv.backend.KillFunction)
}

// doFunctionStats asks the leader directly for a function that has run long, and again after BUSY: the function may then have run long
// enough.
func doFunctionStats(s *session, args [][]byte) store.Reply {
	running := s.askScript(args, s.srv.backend.RunningFunction)
	if running.Kind != store.Null {
		return running
	}
	cmd, _ := s.srv.table.Resolve(args)
	call := s.call(cmd, args)
	r := s.settle(s.askLeader(call))
	if r.IsError() && r.Str == string(store.ErrBusyFunction) {
		if running = s.askScript(args, s.srv.backend.RunningFunction); running.Kind != store.Null {
			return running
		}
	}
	return r
}
