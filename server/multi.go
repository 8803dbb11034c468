package server

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// This file has transactions. EXEC sends all queued commands that need the log, and the versions from WATCH, to the leader as one call
// (cluster.Transaction). So no other command runs between them.
//
// This node itself runs commands such as PING or SUBSCRIBE after the leader's answer, because only the answer says whether the transaction
// takes place. But the leader's commands depend on SELECT, AUTH and HELLO, so their effect is worked out before the call. CLIENT TRACKING
// and CLIENT CACHING run before the call if possible, because the keys that it reads may change before the answer arrives.

// maxQueued returns how many bytes of commands a session may queue, and of keys it may watch: about as much as a transaction may write.
func (s *session) maxQueued() int { return int(s.srv.backend.MaxEntry()) + queuedRoom }

// queuedRoom is an allowance for the parts of commands that a transaction does not write.
const queuedRoom = 1 << 20

// A queued command counts as commandCost bytes of memory, and each of its arguments as argumentCost bytes more than it has.
const (
	commandCost  = 64
	argumentCost = 24
)

// transacting is the state of a session from MULTI or WATCH until EXEC is answered. Only the goroutine that serves the session uses it.
type transacting struct {
	multi     *transaction // the open transaction; nil outside MULTI
	executing *transaction // the transaction of an unanswered EXEC
	watchList []cluster.Watched
	watching  map[watchedKey]bool // the keys of watchList
	watchSize int                 // bytes of watchList and watching
	kept      int                 // bytes of queued or executing commands and of watched keys, as session.keeps was last told
}

// transaction is the list of commands that a session has queued since MULTI.
type transaction struct {
	commands []queued
	size     int
	asked    int              // how many times enqueue was called, also when it kept no command because aborted was true
	aborted  bool             // a command was refused, so EXEC will fail
	before   *tracking        // how the session tracked before EXEC
	known    func() knowledge // says what this node knows of the users: AUTH and HELLO call it when answerExec runs them
}

// queued is a command in a transaction.
type queued struct {
	cmd  *store.Command
	args [][]byte
	do   handler           // nil: the leader runs it
	done *store.Reply      // the reply, if the command has run before the call to the leader (runEarly)
	may  *store.DenyReason // for SELECT: whether the user may run it, as askExec has decided; if so, the leader has used that database
}

// watchedKey is a key that a session watches.
type watchedKey struct {
	db  int
	key string
}

func multiRows() []row {
	const flags = store.NoScript | store.Loading | store.Stale | store.Fast | store.AllowBusy
	return []row{
		{Command: store.Command{
			Name: "multi", Arity: 1, Flags: flags, Group: "transactions", Since: "1.2.0",
			Summary: "Begins a transaction: the commands after it are queued.",
		}, do: doMulti},
		{Command: store.Command{
			Name: "exec", Arity: 1, Flags: store.NoScript | store.Loading | store.Stale | store.SkipSlowlog, Group: "transactions", Since: "1.2.0",
			Summary: "Runs the queued commands, unless a watched key has changed.",
		}, do: doExec},
		{Command: store.Command{
			Name: "discard", Arity: 1, Flags: flags, Group: "transactions", Since: "2.0.0",
			Summary: "Drops the queued commands and forgets the watched keys.",
		}, do: doDiscard},
		{Command: store.Command{
			Name: "watch", Arity: -2, Flags: flags, Group: "transactions", Since: "2.2.0", Usage: "key [key ...]",
			Keys:    []store.KeySpec{{Begin: 1, Last: -1, Step: 1, Flags: store.KeyRO}},
			Summary: "Has the next EXEC run only if the keys have not changed by then.",
		}, do: doWatch},
		{Command: store.Command{
			Name: "unwatch", Arity: 1, Flags: flags, Group: "transactions", Since: "2.2.0",
			Summary: "Forgets the watched keys.",
		}, do: doUnwatch},
	}
}

func doMulti(s *session, _ [][]byte) store.Reply {
	if s.multi != nil {
		return store.Err(errNestedMulti)
	}
	s.multi = &transaction{}
	s.queued.Store(0)
	return store.OK
}

func doDiscard(s *session, _ [][]byte) store.Reply {
	if s.multi == nil {
		return store.Err(errDiscardWithoutMulti)
	}
	s.discard()
	return store.OK
}

func doUnwatch(s *session, _ [][]byte) store.Reply {
	s.unwatch()
	return store.OK
}

// discard ends the transaction and forgets the watched keys.
func (s *session) discard() {
	s.queuedInVain(s.multi)
	s.multi = nil
	s.unwatch()
	s.queued.Store(-1)
}

// queuedInVain charges the client for the queueing of a transaction that does not take place.
func (s *session) queuedInVain(t *transaction) {
	if t != nil && t.asked > 0 {
		s.own.add(nil, s.srv.cfg.Clock(), time.Duration(t.asked)*queueTakes, 0)
	}
}

func (s *session) unwatch() {
	s.watchList, s.watching, s.watchSize = nil, nil, 0
	kept := 0
	if s.executing != nil {
		kept = s.executing.size // these commands count until EXEC is answered, even if EXEC runs UNWATCH
	}
	s.keeps(kept)
}

// doWatch answers a WATCH that needs no call to the leader; see ask.
func doWatch(s *session, args [][]byte) store.Reply {
	switch {
	case s.multi != nil:
		return store.Err(errWatchInMulti)
	case s.watchTooMuch(args):
		return store.Err(errTooMuchWatched)
	}
	return store.OK
}

func (s *session) watchTooMuch(args [][]byte) bool {
	size := s.watchSize
	for _, key := range args[1:] {
		size += watchCost + len(key)
	}
	return size > queuedRoom && size > s.maxQueued()
}

// doExec answers an EXEC that needs no call to the leader; see ask.
func doExec(s *session, _ [][]byte) store.Reply {
	t := s.multi
	switch {
	case t == nil:
		return store.Err(errExecWithoutMulti)
	case t.aborted:
		s.discard()
		return store.Err(errExecAborted)
	}
	s.beginExec()
	s.answerExec(s.srv.execCmd, t, nil, 0)
	s.endExec()
	return answered
}

// queues reports whether the session is in MULTI and has to queue a command instead of running it.
func (s *session) queues(cmd *store.Command) bool {
	if s.multi == nil {
		return false
	}
	switch cmd.FullName() {
	case "exec", "discard", "multi", "watch", "quit", "reset":
		return false
	}
	return true
}

func queuedSize(args [][]byte) int {
	n := commandCost
	for _, a := range args {
		n += argumentCost + len(a)
	}
	return n
}

// enqueue adds a command to the transaction, unless EXEC will fail anyway. It copies the arguments, because the next
// pipeline overwrites their memory.
func (s *session) enqueue(cmd *store.Command, args [][]byte) store.Reply {
	t := s.multi
	t.asked++
	if t.aborted {
		return queuedReply
	}
	size := queuedSize(args)
	if t.size+size > queuedRoom && t.size+size > s.maxQueued() {
		t.aborted = true
		return store.Err(errQueueTooBig)
	}
	t.size += size
	s.keeps(s.watchSize + t.size)
	do := s.srv.handlers[cmd]
	if changesUsers(cmd) {
		do = nil // the leader runs it with the other commands
	}
	t.commands = append(t.commands, queued{cmd: cmd, args: copyArgs(args), do: do})
	s.queued.Store(int32(len(t.commands)))
	return queuedReply
}

var queuedReply = store.Status("QUEUED")

// copyArgs copies arguments into one piece of memory.
func copyArgs(args [][]byte) [][]byte {
	n := 0
	for _, a := range args {
		n += len(a)
	}
	buf, list := make([]byte, 0, n), make([][]byte, len(args))
	for i, a := range args {
		from := len(buf)
		buf = append(buf, a...)
		list[i] = buf[from:len(buf):len(buf)]
	}
	return list
}

// abort handles the refusal of a command, and returns the error for the client. After MULTI, the refusal makes EXEC fail.
func (s *session) abort(cmd *store.Command, refusal store.Error) store.Error {
	if s.multi != nil {
		s.multi.aborted = true
	}
	if cmd != nil && cmd == s.srv.execCmd {
		s.discard()
		if refusal == errCrossSlot || strings.HasPrefix(string(refusal), movedTo) {
			return refusal
		}
		return store.ErrExecAbort(refusal)
	}
	return refusal
}

// fewInPlace is the most commands of a transaction that a loop itself runs.
const fewInPlace = 100

// execWaits reports whether EXEC may take so long on this node that a loop must not run it.
func (s *session) execWaits(t *transaction) bool {
	if t == nil {
		return false
	}
	here, bytes, names, reads := 0, 0, 0, 0
	for i := range t.commands {
		q := &t.commands[i]
		if q.do == nil {
			if mayRead(q.cmd) {
				reads += len(q.args) - 1
			}
			continue
		}
		here, bytes, names = here+1, bytes+queuedSize(q.args), names+s.namesIn(q.cmd, q.args)
		if !s.srv.inPlace[q.cmd] || here > fewInPlace || bytes > cluster.HeavyBytes || names > fewNames {
			return true
		}
	}
	return reads > fewRead && s.mayTrackIn(t)
}

// mayTrackIn reports whether this node may have to remember the keys that a transaction reads: the session tracks, or the
// transaction may make it track.
func (s *session) mayTrackIn(t *transaction) bool {
	return s.tracking.Load() != nil || slices.ContainsFunc(t.commands, func(q queued) bool { return q.cmd == s.srv.trackingCmd })
}

// paused reports whether CLIENT PAUSE holds a command back. CLIENT PAUSE WRITE holds EXEC back if it would hold back one of
// the queued commands.
func (s *session) paused(cmd *store.Command, args [][]byte) bool {
	p := s.srv.pause
	if p.holds(cmd, args) {
		return true
	}
	if cmd != s.srv.execCmd || s.multi == nil || p.mode.Load() == pauseOff {
		return false
	}
	return slices.ContainsFunc(s.multi.commands, func(q queued) bool { return p.mayWrite(q.cmd, q.args) })
}

// ask returns the transaction, if any, that EXEC or WATCH must send to the leader. The caller passes the leader's answer to
// answerTransaction.
func (s *session) ask(cmd *store.Command, args [][]byte) *cluster.Transaction {
	switch cmd {
	case s.srv.watchCmd:
		return s.askWatch(args)
	case s.srv.execCmd:
		return s.askExec()
	}
	return nil
}

// transaction returns the call for an EXEC or WATCH that carries the transaction t to the leader.
func (s *session) transaction(cmd *store.Command, args [][]byte, t *cluster.Transaction) cluster.Call {
	c := s.call(cmd, args)
	c.Txn = t
	return c
}

func (s *session) askWatch(args [][]byte) *cluster.Transaction {
	if s.multi != nil || s.watchTooMuch(args) {
		return nil
	}
	t := &cluster.Transaction{Observe: true}
	db := int(s.db.Load())
	again := make(map[watchedKey]bool, len(args))
	for _, key := range copyArgs(args[1:]) {
		// If the session watches the key already, EXEC compares with the version from the earlier WATCH.
		k := watchedKey{db, string(key)}
		if !s.watching[k] && !again[k] {
			again[k] = true
			t.Watched = append(t.Watched, cluster.Watched{DB: db, Key: key})
		}
	}
	if len(t.Watched) == 0 {
		return nil
	}
	return t
}

func (s *session) askExec() *cluster.Transaction {
	t := s.multi
	if t == nil || t.aborted {
		return nil
	}
	txn := &cluster.Transaction{Watched: s.watchList}
	db, resp := int(s.db.Load()), s.protocol()
	user, users := s.caller()
	t.before = s.tracking.Load()
	s.reading = 0
	early, known := true, s.asksAnew()
	for i := range t.commands {
		q := &t.commands[i]
		if q.do == nil {
			txn.Calls = append(txn.Calls, cluster.Call{Cmd: q.cmd, Args: q.args, DB: db, RESP: resp, User: user, Users: users})
			s.track(&txn.Calls[len(txn.Calls)-1])
			continue
		}
		switch q.cmd.FullName() {
		case "select":
			why := s.mayAs(user, q)
			if n, refusal := parseDB(q.args[1]); refusal == "" && why == store.Allowed {
				db = n
			}
			q.may = &why
		case "client|tracking", "client|caching":
			// CLIENT TRACKING OFF does not run early, because the transaction may fail. Neither do later CLIENT TRACKING and CLIENT
			// CACHING commands, which must keep their order.
			if on, ok := onOff(q.args[2]); ok && !on {
				early = false
			}
			if early {
				s.runEarly(q)
			}
		case "auth", "hello":
			early = false
			after := 0
			if user, after = s.callerAfter(user, q, known); after != 0 {
				resp = after
			}
		}
	}
	if len(txn.Calls)+len(txn.Watched) == 0 {
		return nil
	}
	s.beginExec()
	return txn
}

// beginExec ends MULTI and forgets the watched keys. CLIENT LIST shows the transaction until endExec.
func (s *session) beginExec() {
	s.executing, s.multi = s.multi, nil
	s.unwatch()
}

func (s *session) endExec() {
	s.executing = nil
	s.queued.Store(-1)
	s.keeps(s.watchSize)
}

// answerTransaction replies to WATCH or EXEC with the leader's answer.
func (s *session) answerTransaction(c *cluster.Call, r store.Reply, took time.Duration) {
	switch {
	case c.Txn.Observe && r.Kind == store.Array && len(r.Elems) == len(c.Txn.Watched):
		for i, w := range c.Txn.Watched {
			w.Version = uint64(r.Elems[i].Int)
			s.watch(w)
		}
		s.reply(c.Cmd, store.OK)
	case c.Txn.Observe && r.IsError() && (r.Str == string(store.ErrBusyScript) || r.Str == string(store.ErrBusyFunction)):
		// Redis accepts WATCH while a script runs. EXEC must then see the keys as changed, and no key ever has version 0.
		for _, w := range c.Txn.Watched {
			s.watch(w)
		}
		s.reply(c.Cmd, store.OK)
	case c.Txn.Observe:
		s.reply(c.Cmd, r)
	case r.Kind == store.Array && len(r.Elems) == len(c.Txn.Calls):
		s.answerExec(c.Cmd, s.executing, r.Elems, took)
		s.endExec()
	default:
		s.queuedInVain(s.executing)
		s.srv.hub.tracker.restore(s, s.executing.before)
		s.reply(c.Cmd, r)
		if strings.HasPrefix(r.Str, "INDETERMINATE ") && s.executing.moves() {
			s.closeAfterReply() // the client does not know in which database, or as which user, its next commands would run
		}
		s.endExec()
	}
}

// moves reports whether a command of the transaction changes the client's database, user or protocol.
func (t *transaction) moves() bool {
	return slices.ContainsFunc(t.commands, func(q queued) bool {
		name := q.cmd.FullName()
		return name == "select" || name == "auth" || name == "hello"
	})
}

func (s *session) watch(w cluster.Watched) {
	s.watchList = append(s.watchList, w)
	if s.watching == nil {
		s.watching = map[watchedKey]bool{}
	}
	s.watching[watchedKey{w.DB, string(w.Key)}] = true
	s.watchSize += watchCost + 2*len(w.Key)
	s.keeps(s.watchSize)
}

// answerExec replies to EXEC with the leader's answers, and runs this node's own commands. No message may come between the replies.
func (s *session) answerExec(exec *store.Command, t *transaction, answers []store.Reply, took time.Duration) {
	each := took / time.Duration(max(len(t.commands), 1))
	t.known = s.asksAnew() // anew, because the commands that the leader has run may have changed a password
	s.out.hold()
	defer s.out.release(s.renew)
	if !s.muted() {
		s.out.add(0, func(b []byte) []byte {
			return append(strconv.AppendInt(append(b, '*'), int64(len(t.commands)), 10), '\r', '\n')
		})
	}
	for i := range t.commands {
		q := &t.commands[i]
		if q.do == nil {
			s.ran(q.cmd, q.args, each)
			s.display(q.cmd, q.args)
			s.reply(q.cmd, answers[0])
			answers = answers[1:]
			continue
		}
		if s.mayWait() && !s.srv.inPlace[q.cmd] {
			s.sendGrants() // the command may wait for the leader
		}
		s.rest(q.cmd, q.args)
		s.own.waited = 0
		size := s.out.size()
		r, ran, took := s.runQueued(q)
		s.reply(q.cmd, r)
		s.own.add(q.cmd, s.srv.cfg.Clock(), took, s.out.size()-size)
		if ran {
			s.display(q.cmd, q.args)
		}
		if s.flushMuch(); !s.goesOn() {
			return
		}
	}
	if s.tracksLate(t) {
		s.srv.hub.tracker.forgets(s)
	}
}
