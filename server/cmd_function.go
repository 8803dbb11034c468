package server

import (
	"lockstep/store"
)

func doFunctionKill(s *session, args [][]byte) store.Reply {
	return s.askScript(args, s.srv.backend.KillFunction)
}

// doFunctionStats describes a running function without waiting for its end: RunningFunction asks the leader directly. It
// describes a function only when the function has run for long enough to be killed. Otherwise, the leader runs FUNCTION STATS
// like other commands. If the leader then answers BUSY because of a function, that function may have run for long enough by
// now, so doFunctionStats asks RunningFunction once more.
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
