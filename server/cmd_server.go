package server

import (
	"strconv"
	"strings"

	"github.com/lockstep-io/lockstep/store"
)

func serverRows() []row {
	const admin = store.Admin | store.NoScript
	return []row{
		{Command: store.Command{
			Name: "time", Arity: 1, Flags: store.Loading | store.Stale | store.Fast, Group: "server", Since: "2.6.0",
			Summary: "Returns the server's time: Unix seconds and the microseconds of the second.", Run: runTime,
			Tips: []string{"nondeterministic_output"},
		}, do: doTime},
		{Command: store.Command{
			Name: "role", Arity: 1, Flags: store.NoScript | store.Loading | store.Stale | store.Fast | store.Dangerous, Categories: []string{"admin"}, Group: "server", Since: "2.8.12",
			Summary: "Says whether this node leads or follows.",
		}, do: doRole},
		{Command: store.Command{
			Name: "lastsave", Arity: 1, Flags: store.Loading | store.Stale | store.Fast | store.Dangerous, Categories: []string{"admin"}, Group: "server", Since: "1.0.0",
			Summary: "Returns when the last snapshot was asked for.", Tips: []string{"nondeterministic_output"},
		}, do: doLastSave},
		{Command: store.Command{
			Name: "save", Arity: 1, Flags: admin | store.NoAsyncLoading | store.NoMulti, Group: "server", Since: "1.0.0",
			Summary: "Writes a snapshot and waits for it.",
		}, do: doSave},
		{Command: store.Command{
			Name: "bgsave", Arity: -1, Flags: admin | store.NoAsyncLoading, Group: "server", Since: "1.0.0",
			Summary: "Writes a snapshot in the background.", Usage: "[SCHEDULE]",
		}, do: doBgSave},
		{Command: store.Command{
			Name: "shutdown", Arity: -1, Flags: admin | store.Loading | store.Stale | store.NoMulti | store.AllowBusy, Group: "server", Since: "1.0.0",
			Summary: "Stops this node.", Usage: "[NOSAVE | SAVE] [NOW] [FORCE] [ABORT]",
		}, do: doShutdown},
		{Command: store.Command{
			Name: "debug", Arity: -2, Flags: admin | store.Loading | store.Stale, Group: "server", Since: "1.0.0",
			Summary: "Commands for tests.", Usage: "subcommand [arg ...]", Run: runDebug,
		}, do: doDebug},
	}
}

// runTime runs TIME in a script. The time does not change while a script runs.
func runTime(c *store.Ctx) store.Reply { return unixTime(c.Now().Wall) }

func doTime(s *session, _ [][]byte) store.Reply { return unixTime(s.srv.cfg.Clock().UnixMicro()) }

func unixTime(us int64) store.Reply {
	return store.Strs(strconv.FormatInt(us/1e6, 10), strconv.FormatInt(us%1e6, 10))
}

func doLastSave(s *session, _ [][]byte) store.Reply {
	return store.Int(s.srv.lastSave.Load())
}

// save writes a snapshot, and logs a failure. While another call writes a snapshot, it returns errSaving.
func (srv *Server) save() store.Error {
	if !srv.saving.CompareAndSwap(false, true) {
		return errSaving
	}
	defer srv.saving.Store(false)
	err := srv.backend.Snapshot()
	srv.saveFailed.Store(err != nil)
	if err != nil {
		srv.cfg.Log.Error("cannot write a snapshot", "error", err)
		return errf("ERR %v", err)
	}
	srv.lastSave.Store(srv.cfg.Clock().Unix())
	return ""
}

func doSave(s *session, _ [][]byte) store.Reply {
	if refusal := s.srv.save(); refusal != "" {
		return store.Err(refusal)
	}
	return store.OK
}

func doBgSave(s *session, args [][]byte) store.Reply {
	if len(args) > 2 || len(args) == 2 && !strings.EqualFold(string(args[1]), "schedule") {
		return store.Err(store.ErrSyntax)
	}
	if s.srv.saving.Load() {
		return store.Err(errSaving)
	}
	go s.srv.save() // save logs its failure
	return store.Status("Background saving started")
}

func doShutdown(s *session, args [][]byte) store.Reply {
	var save, nosave, other, abort bool
	for _, a := range args[1:] {
		switch strings.ToLower(string(a)) {
		case "save":
			save = true
		case "nosave":
			nosave = true
		case "now", "force":
			other = true
		case "abort":
			abort = true
		default:
			return store.Err(store.ErrSyntax)
		}
	}
	switch {
	case save && nosave, abort && (save || nosave || other):
		return store.Err(store.ErrSyntax)
	case abort:
		return store.Err(errNoShutdown)
	case s.srv.cfg.OnShutdown == nil:
		return store.Err(errShutdown)
	}
	s.srv.cfg.Log.Info("a client asked for shutdown", "addr", s.addr)
	s.closeAfterReply()
	s.srv.cfg.OnShutdown()
	return store.Reply{Kind: store.None}
}
