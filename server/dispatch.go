package server

import (
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"lockstep/cluster"
	"lockstep/store"
)

// maxCalls bounds one submission.
const maxCalls = 1024

// serve is redcon's handler. It takes the pipeline as a whole: consecutive
// commands that need the log become one submission, and the replies of all
// leave in one write.
func (srv *Server) serve(conn redcon.Conn, first redcon.Command) {
	s := conn.Context().(*session)
	rest := conn.ReadPipeline()
	if s.begin() {
		s.active.Store(srv.cfg.Clock().UnixMilli())
		s.dispatch(s.conn.claim(first.Args))
		for i := range rest {
			if s.isClosing() {
				break
			}
			s.dispatch(s.conn.claim(rest[i].Args))
		}
		s.submit()
		s.out.flush()
	}
	if s.end() {
		// redcon stops reading; what Close can report, the client has caused.
		_ = conn.Close()
	}
}

// dispatch runs one command, or keeps it for the next submission.
func (s *session) dispatch(args [][]byte) {
	if isHTTP(args[0]) {
		// A web page that makes a browser speak to us: say nothing, not even
		// the replies that are ready.
		s.srv.cfg.Log.Warn("closed a connection that speaks HTTP", "addr", s.addr)
		s.submit()
		s.out.abort()
		s.closeAfterReply()
		return
	}
	cmd, refusal := s.admit(args)
	if refusal != "" {
		s.submit()
		s.srv.stats.rejected(cmd)
		s.noteRefusal(cmd, args, refusal)
		s.reply(nil, store.Err(refusal))
		s.finish()
		return
	}
	// A loop has looked at this already, and does its own waiting.
	if !s.onLoop && s.srv.pause.holds(cmd, args) {
		if s.parkHere() {
			s.dispatch(args)
		}
		return
	}
	s.command.Store(cmd)
	do := s.srv.handlers[cmd]
	if do == nil && cmd.Is(store.Blocking) {
		s.blockHere(cmd, args)
		return
	}
	if do == nil {
		s.calls = append(s.calls, cluster.Call{Cmd: cmd, Args: args, DB: int(s.db.Load()), RESP: s.protocol(), User: s.caller()})
		if len(s.calls) >= maxCalls {
			s.submit()
		}
		return
	}
	s.submit()
	start := s.srv.cfg.Clock()
	r := do(s, args)
	s.srv.stats.called(cmd, s.srv.cfg.Clock().Sub(start))
	s.reply(cmd, r)
	s.finish()
}

// submit sends the collected commands through the log and queues the replies.
func (s *session) submit() {
	if len(s.calls) == 0 {
		return
	}
	start := s.srv.cfg.Clock()
	s.replies = s.srv.backend.Submit(s.calls, s.replies[:0])
	s.answer(s.srv.cfg.Clock().Sub(start))
}

// answer queues the replies of a submission and counts its commands.
func (s *session) answer(took time.Duration) {
	each := took / time.Duration(len(s.calls))
	for i := range s.calls {
		cmd := s.calls[i].Cmd
		s.srv.stats.called(cmd, each)
		r := s.replies[i]
		if r.Kind == store.Noted {
			r = s.settle(r)
		}
		s.reply(cmd, r)
		s.finish()
	}
	// Do not hold on to what the client sent while it is idle.
	clear(s.calls)
	clear(s.replies)
	s.calls = s.calls[:0]
}

// admit makes the checks that Redis makes before it runs a command, in its
// order (server.c, processCommand), and returns the command or the refusal.
func (s *session) admit(args [][]byte) (*store.Command, store.Error) {
	// Does it exist? A container is asked for its subcommand at once.
	cmd, ok := s.srv.table.Resolve(args)
	if cmd == nil {
		return nil, errUnknownCommand(args)
	}
	if !ok && len(args) > 1 {
		return nil, errUnknownSubcommand(cmd.Name, args[1])
	}
	// Does it have a legal number of arguments?
	if !ok || !cmd.ArityOK(len(args)) {
		return cmd, store.ErrWrongArgs(cmd.FullName())
	}
	// Is it one that the operator has to allow?
	if cmd.Name == "debug" && cmd.FullName() == "debug" && !s.debugAllowed() {
		return cmd, errDebugOff
	}
	// Has the client said who it is? So an unknown command is reported as
	// such even to one that has not.
	if s.needsAuth() && !cmd.Is(store.NoAuth) {
		return cmd, errNoAuth
	}
	// Does the client's user have the right to it?
	if refusal := s.mayRun(cmd, args); refusal != "" {
		return cmd, refusal
	}
	// Does another node of the cluster own its keys?
	if s.face == FaceCluster {
		if refusal := s.redirect(cmd, args); refusal != "" {
			return cmd, refusal
		}
	}
	// In RESP2 a message would be taken for a reply, so a subscriber may only
	// call commands whose replies have the form of messages.
	if s.protocol() == 2 && s.subscriber() && !inPubSubContext(cmd.FullName()) {
		return cmd, errPubSubContext(cmd.FullName())
	}
	// Does a script keep everyone waiting?
	if !cmd.Is(store.AllowBusy) && s.srv.backend.Busy() {
		return cmd, s.srv.backend.BusyError()
	}
	return cmd, ""
}

func inPubSubContext(name string) bool {
	switch name {
	case "ping", "quit", "reset", "subscribe", "unsubscribe", "psubscribe", "punsubscribe", "ssubscribe", "sunsubscribe":
		return true
	}
	return false
}

func (s *session) debugAllowed() bool {
	switch s.srv.cfg.EnableDebugCommand {
	case "yes":
		return true
	case "local":
		return s.local()
	}
	return false
}

func isHTTP(name []byte) bool {
	return len(name) == 4 && strings.EqualFold(string(name), "post") ||
		len(name) == 5 && strings.EqualFold(string(name), "host:")
}
