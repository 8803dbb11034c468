package server

import (
	"lockstep/store"
)

func doFunctionKill(s *session, args [][]byte) store.Reply {
	return s.askScript(args, s.srv.backend.KillFunction)
}

// doFunctionStats describes a running function without waiting for its end: RunningFunction asks the leader
// directly. If no function runs, the leader runs FUNCTION STATS like other commands.
func doFunctionStats(s *session, args [][]byte) store.Reply {
	if r := s.askScript(args, s.srv.backend.RunningFunction); r.Kind != store.Null {
		return r
	}
	cmd, _ := s.srv.table.Resolve(args)
	call := s.call(cmd, args)
	return s.settle(s.askLeader(call))
}
