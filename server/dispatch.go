package server

import (
	"math"
	"strings"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// A submission has at most maxCalls commands, or fewCalls while manyCalls commands of all clients wait: pipelines could fill a small
// node. keepCalls limits what an idle session keeps.
const (
	maxCalls  = 1024
	fewCalls  = 64
	manyCalls = 32 << 10
	keepCalls = 32
)

// callsAtOnce returns how many commands the next submission may have.
func (srv *Server) callsAtOnce() int {
	if srv.submitted.Load() >= manyCalls {
		return fewCalls
	}
	return maxCalls
}

// serve is redcon's handler for one pipeline. It submits consecutive commands for the leader together, at most maxCalls at a time.
func (srv *Server) serve(conn redcon.Conn, first redcon.Command) {
	s := conn.Context().(*session)
	rest := conn.ReadPipeline()
	if s.begin() {
		s.active.Store(srv.cfg.Clock().UnixMilli())
		s.wasBusy = false
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
		// After Close, redcon does not read this connection any more. An error means that it is closed already.
		_ = conn.Close()
	}
}

// action is what a session does with a command.
type action uint8

const (
	actHTTP    action = iota // part of an HTTP request: end the connection, because a web page may have made a browser send it
	actRefuse                // answer it with an error
	actQueue                 // put it into the queue of MULTI
	actBlock                 // a blocking command: have the leader answer it, perhaps after a long wait
	actCollect               // have the leader answer it, together with the commands before and after it
	actHere                  // answer it on this node
)

// decision is what to do with a command.
type decision struct {
	action  action
	cmd     *store.Command
	refusal store.Error // the error to answer with, for actRefuse
	do      handler     // what answers the command on this node, for actHere
	paused  bool        // CLIENT PAUSE holds the command back for now
}

// decide says what to do with a command. It does not wait, because event loops call it, too (loop.step), and changes nothing but
// s.checked.
func (s *session) decide(args [][]byte) decision {
	if isHTTP(args[0]) {
		return decision{action: actHTTP}
	}
	cmd, refusal := s.admit(args)
	if refusal != "" {
		return decision{action: actRefuse, cmd: cmd, refusal: refusal}
	}
	d := decision{action: actHere, cmd: cmd, do: s.srv.handlers[cmd], paused: s.paused(cmd, args)}
	switch {
	case s.queues(cmd):
		d.action = actQueue
	case s.srv.blocks(cmd, args):
		if d.action = actBlock; s.tooManyTickets(cmd, args) {
			d.action, d.refusal = actRefuse, errTickets
		}
	case d.do == nil && s.srv.asksClients(cmd):
		d.do = doLockSight
	case d.do == nil:
		d.action = actCollect
	}
	return d
}

// dispatch runs one command, or collects it for the next submission. It may wait.
func (s *session) dispatch(args [][]byte) (done bool) { return s.handle(s.decide(args), args) }

// handle does what decide has said. It returns false without running the command if the loop must first park the connection for CLIENT
// PAUSE.
func (s *session) handle(d decision, args [][]byte) (done bool) {
	if s.unsure != "" && d.cmd != nil && d.refusal == "" && d.action != actQueue {
		if refusal := s.sure(d.cmd, args); refusal != "" {
			s.reject(d.cmd, args, refusal)
			return true
		}
		d = s.decide(args) // again, because session.sure may have waited
	}
	if d.paused {
		if s.onLoop {
			return false
		}
		return !s.parkHere() || s.dispatch(args)
	}
	switch d.action {
	case actHTTP:
		// Send nothing, not even the finished replies.
		s.srv.seldom.http.note(s.srv.cfg.Clock(), "last", s.addr)
		s.submit()
		s.out.abort()
		s.closeAfterReply()
	case actRefuse:
		s.submit()
		s.rest(d.cmd, nil)
		s.refuse(d, args)
	case actQueue:
		s.command.Store(d.cmd)
		leave := s.giveWay(args)
		s.reply(nil, s.enqueue(d.cmd, args))
		leave()
		s.countChecks()
		s.finish()
	case actBlock:
		s.blockHere(d.cmd, args)
	case actCollect:
		if s.checksMuch() {
			s.submit()
			if s.rest(d.cmd, nil) {
				return s.dispatch(args) // decide again, because session.rest has waited
			}
		}
		s.collect(d.cmd, args)
		if len(s.calls) >= s.srv.callsAtOnce() {
			s.submit()
		}
	case actHere:
		return s.handleHere(d, args)
	}
	return true
}

// handleHere does what handle does, for a command that this node itself answers.
func (s *session) handleHere(d decision, args [][]byte) (done bool) {
	s.command.Store(d.cmd)
	s.submit()
	if s.mayWait() && (!s.srv.inPlace[d.cmd] || d.cmd == s.srv.execCmd) { // an EXEC may have commands that wait
		s.sendGrants()
	}
	if s.rest(d.cmd, args) {
		return s.dispatch(args) // decide again, because session.rest has waited
	}
	if t := s.ask(d.cmd, args); t != nil {
		s.calls = append(s.calls, s.transaction(d.cmd, args, t))
		s.submit()
		return true
	}
	refusal := s.checkOperator(d.cmd, args) // before session.alone, so that no client waits for this one while this one waits for the leader
	end, ok := s.alone(d.cmd)
	if !ok {
		s.closeAfterReply()
		return true
	}
	gave := s.giveWay(args)
	leave := func() {
		gave()
		end()
	}
	if s.mayWait() && s.paused(d.cmd, args) { // a pause may have begun while session.alone or giveWay waited
		leave()
		return s.dispatch(args)
	}
	s.answerHere(d, args, refusal, leave)
	return true
}

// refuse answers a command with its refusal. It charges the client for the time that this takes (session.own).
func (s *session) refuse(d decision, args [][]byte) {
	start, size := s.srv.cfg.Clock(), s.out.size()
	s.reject(d.cmd, args, d.refusal)
	end := s.srv.cfg.Clock()
	s.own.add(nil, end, end.Sub(start), argumentBytes(args)+s.out.size()-size)
	s.countChecks()
}

// answerHere answers a command on this node, with refusal unless that is "". It calls leave when the reply is in the output.
func (s *session) answerHere(d decision, args [][]byte, refusal store.Error, leave func()) {
	cmd := d.cmd
	s.own.waited = 0
	start, size := s.srv.cfg.Clock(), s.out.size()
	r := s.runHere(d, args, refusal)
	end := s.srv.cfg.Clock()
	s.ran(cmd, args, end.Sub(start))
	s.reply(cmd, r)
	leave() // before flushMuch, which may wait for a client that does not read
	s.own.add(cmd, end, end.Sub(start), argumentBytes(args)+s.out.size()-size)
	s.countChecks()
	s.flushMuch()
	s.display(cmd, args)
	s.used(cmd)
	s.finish()
}

// reject answers a command with a refusal instead of running it.
func (s *session) reject(cmd *store.Command, args [][]byte, refusal store.Error) {
	s.submit()
	defer s.giveWay(args)()
	s.srv.stats.rejected(cmd)
	s.wasBusy = s.wasBusy || refusal == store.ErrBusyScript || refusal == store.ErrBusyFunction
	s.noteRefusal(cmd, args, refusal)
	s.reply(nil, store.Err(s.abort(cmd, refusal)))
	s.used(cmd)
	s.finish()
}

// runHere runs a command that this node answers itself. It first checks the user's right to a command for operators again.
func (s *session) runHere(d decision, args [][]byte, refusal store.Error) store.Reply {
	if refusal == "" && d.cmd.Is(store.Admin) {
		refusal = s.mayRun(d.cmd, args)
		s.noteRefusal(d.cmd, args, refusal)
	}
	if refusal != "" {
		return store.Err(refusal)
	}
	return s.run(d.do, args)
}

// giveWay waits for the client's turn after a large command that is not submitted. After the reply, the caller must call leave.
func (s *session) giveWay(args [][]byte) (leave func()) {
	if size := queuedSize(args); size > cluster.HeavyBytes && s.mayWait() {
		s.sendGrants()
		return s.srv.backend.GiveWay(s.client, size, len(args))
	}
	return func() {}
}

// collect keeps a command for the next submission.
func (s *session) collect(cmd *store.Command, args [][]byte) {
	s.countChecks()
	s.command.Store(cmd)
	s.display(cmd, args)
	s.calls = append(s.calls, s.call(cmd, args))
	if s.tracking.Load() != nil {
		s.track(&s.calls[len(s.calls)-1])
		s.used(cmd)
	}
}

// submit submits the collected commands to the backend, waits for the replies, and queues them.
func (s *session) submit() {
	for len(s.calls) > 0 {
		s.sendGrants()
		start := s.srv.cfg.Clock()
		s.srv.submitted.Add(int64(len(s.calls)))
		s.replies = s.srv.backend.SubmitPart(s.client, s.calls, s.replies[:0])
		s.answer(s.srv.cfg.Clock().Sub(start), true)
	}
}

// sendGrants sends output that may grant leases, before the session waits for anything. A client counts its lease from the reply, and
// the leader lengthens a lease only by the time until the leader has answered.
func (s *session) sendGrants() {
	if !s.grants {
		return
	}
	s.grants = false
	if s.mayWait() {
		s.out.flush()
	} else {
		s.out.sendPushed()
	}
}

// After a submission that took slowPart or longer, the session sends its replies before it submits further commands. If it cannot send
// them, it does not run these commands.
const slowPart = 10 * time.Millisecond

// largeOutput is the size of output above which further commands wait, so that a client that reads nothing does not fill memory.
const largeOutput = 1 << 20

// mayWait reports whether the session runs on a goroutine of its own, which may wait, and not on an event loop.
func (s *session) mayWait() bool { return s.away || !s.onLoop }

// flushMuch sends output of more than largeOutput, and ends the commands of a client that has been cut off.
func (s *session) flushMuch() {
	if s.mayWait() && s.out.size() > largeOutput {
		s.out.flush()
	}
	if s.out.isOver() {
		s.closeAfterReply()
	}
}

// answer queues the replies of a submission that took the given time. Calls that have not run stay in s.calls. If mayWait is true,
// answer may send the output and wait for the socket.
func (s *session) answer(took time.Duration, mayWait bool) {
	s.srv.submitted.Add(-int64(len(s.calls)))
	each := took / time.Duration(len(s.replies))
	for i := range s.replies {
		cmd := s.calls[i].Cmd
		r := s.replies[i]
		if r.Kind == store.Noted {
			r = s.settle(r)
		}
		s.grants = s.grants || s.calls[i].Txn != nil || cmd.Is(store.Scripting) || s.srv.grants[cmd]
		if s.calls[i].Txn != nil {
			s.answerTransaction(&s.calls[i], r, each)
			s.display(cmd, s.calls[i].Args) // MONITOR shows EXEC after the commands of the transaction, as in Redis
			s.used(cmd)
		} else {
			s.noteLock(cmd, s.calls[i].Args, s.calls[i].DB, r)
			s.reply(cmd, s.addSubscribers(cmd, s.calls[i].Args, r))
		}
		s.ran(cmd, s.calls[i].Args, each)
		s.finish()
		some := len(r.Str)+len(r.Elems) > 0
		s.replies[i], r = store.Reply{}, store.Reply{} // free the reply now: it may take much more memory than its encoding
		if mayWait && some && s.out.size() > largeOutput {
			// The replies that are not encoded yet count as memory of the client now: they may have to wait for a client
			// that does not read.
			waiting := int64(store.Extent(s.replies[i+1:], math.MaxInt))
			s.holds(waiting)
			s.client.Encoded()
			s.out.flush()
			s.holds(-waiting)
		}
	}
	s.client.Encoded()
	if mayWait && took >= slowPart {
		s.out.flush()
	}
	// Drop the arguments of the answered calls, so that an idle session keeps no memory for them.
	n := copy(s.calls, s.calls[len(s.replies):])
	if s.out.isOver() {
		n = 0
		s.closeAfterReply()
	}
	clear(s.calls[n:])
	clear(s.replies)
	if s.calls = s.calls[:n]; n == 0 && cap(s.calls) > keepCalls {
		s.calls, s.replies = nil, nil
	}
	if s.holding && n == 0 {
		s.holding = false
		s.srv.hub.tracker.release(s)
	}
}

// admit makes the checks that Redis makes before it runs a command, in Redis's order (server.c,
// processCommand), and returns the command or the refusal.
func (s *session) admit(args [][]byte) (*store.Command, store.Error) {
	// Does it exist? Resolve looks for the subcommand of a container, too.
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
	// Does the operator have to allow it?
	switch cmd.Name {
	case "debug":
		if cmd.FullName() == "debug" && !s.debugAllowed() {
			return cmd, errDebugOff
		}
	case "load", "loadex", "unload":
		if strings.HasPrefix(cmd.FullName(), "module|") {
			return cmd, errModules
		}
	}
	// Has the client authenticated? This check comes after those above, so that a client without
	// authentication learns that a command is unknown.
	if s.needsAuth() && !cmd.Is(store.NoAuth) {
		return cmd, store.ErrNoAuth
	}
	if s.multi != nil && cmd.Is(store.NoMulti) {
		return cmd, errNotInMulti
	}
	// Does the client's user have the right to run it?
	if refusal := s.mayRun(cmd, args); refusal != "" {
		return cmd, refusal
	}
	// Is it too long? This check comes before redirect, because the guard may have cut short the keys that redirect hashes.
	if refusal := s.mayBeSoLong(cmd, args); refusal != "" {
		return cmd, refusal
	}
	// Does another node of the cluster own its keys?
	if s.face == FaceCluster {
		if refusal := s.redirect(cmd, args); refusal != "" {
			return cmd, refusal
		}
	}
	if s.multi != nil && cmd.Is(store.DenyOOM) && s.srv.backend.OutOfMemory() {
		// Redis, when out of memory, queues no command. Here, commands that need no memory are queued, so that a transaction can still
		// release a lock.
		return cmd, store.ErrOutOfMemory
	}
	if s.srv.params.minReplicas.Load() > 0 && s.tooFewReplicas(cmd, args) {
		return cmd, errTooFewReplicas
	}
	if cmd.Newer && s.srv.backend.KnowsOlder() {
		return cmd, errCommandOlder
	}
	// A RESP2 client could take a message for a reply. So a RESP2 subscriber may call only commands whose replies look like messages.
	if s.protocol() == 2 && s.subscriber() && !inPubSubContext(cmd.FullName()) {
		return cmd, errPubSubContext(cmd.FullName())
	}
	// Has a script been running on this node, the leader, for longer than busy-reply-threshold?
	if !cmd.Is(store.AllowBusy) && (s.wasBusy || s.srv.backend.Busy()) {
		return cmd, s.srv.backend.BusyError()
	}
	if s.monitoring.Load() && touchesKeys(cmd) {
		return cmd, errMonitorKeys
	}
	return cmd, ""
}

// mayBeSoLong refuses a command that is too long for the leader, because sending 500 MB would delay the commands of all other clients.
func (s *session) mayBeSoLong(cmd *store.Command, args [][]byte) store.Error {
	limit := s.conn.cut
	if limit == 0 {
		limit = s.tooLong(int64(argumentBytes(args)))
	}
	if limit == 0 {
		return ""
	}
	return cmd.ErrTooLong(limit)
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
