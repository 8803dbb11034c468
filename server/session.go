package server

import (
	"container/list"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/cluster"
	"lockstep/cluster/brake"
	"lockstep/cluster/turns"
	"lockstep/store"
)

// session is one connection and its state. Its parts differ in who uses them, and in how long they live.
type session struct {
	// These are set once, but for onLoop and away.
	srv     *Server
	id      int64
	client  *cluster.Client
	conn    *guard
	out     *outbox
	addr    string
	laddr   string
	face    Face
	secret  bool // the client speaks TLS
	created time.Time
	onLoop  bool       // an event loop serves the connection …
	away    bool       // … but a goroutine runs its commands now, because they may wait
	script  *store.Ctx // set if there is no client: see RunInScript

	answering
	transacting
	observed
	messaging
	lifecycle

	// Server.mu guards these:
	stranger *list.Element // its place in Server.strangers
	departed *list.Element // its place in Server.departed
	cutOff   bool          // it was cut off for a newcomer
}

// answering is what the commands of a session change and need. Only the session's own goroutine uses it.
type answering struct {
	calls   []cluster.Call // waiting to be submitted together
	replies []store.Reply
	unsure  string // hash of the login's password, if the leader could not confirm it
	proof   string // at a Sentinel: hash of the login's password
	replica bool   // READONLY on the Cluster listener
	silent  bool   // CLIENT REPLY OFF
	skip    int    // commands until CLIENT REPLY SKIP is over; see finish
	strange struct {
		since time.Time
		count int // commands of an unauthenticated client since then
	}
	own     ownWork
	checked int   // steps of checks of rights that are not in own yet (countChecks)
	caching bool  // CLIENT CACHING has been called for the next command
	holding bool  // tracker messages wait for replies
	reading int   // how many keys the collected calls, or the EXEC, read; counted only while the client tracks
	built   int64 // bytes of the reply under construction
}

// observed is what other goroutines read, for CLIENT LIST and messages.
type observed struct {
	db         atomic.Int32
	resp       atomic.Int32
	authed     atomic.Bool
	account    atomic.Pointer[account] // nil if there is no client
	noEvict    atomic.Bool
	noTouch    atomic.Bool
	active     atomic.Int64 // Unix ms of the last pipeline, or the last output that the operating system took
	command    atomic.Pointer[store.Command]
	subbed     atomic.Int32 // subscriptions of all kinds
	queued     atomic.Int32 // commands queued since MULTI; -1 without one
	held       holdings
	blocked    atomic.Pointer[cluster.Blocked]
	blocks     atomic.Int64 // bytes of the blocked command
	parked     atomic.Bool  // held back by CLIENT PAUSE
	left       atomic.Bool  // the client left while a goroutine ran its commands
	monitoring atomic.Bool
	tracking   atomic.Pointer[tracking] // nil: off
}

// messaging is what a session has subscribed to, and the messages that wait for it.
type messaging struct {
	subs     [3]table[struct{}] // guarded by Hub.mu
	waiting  bool               // the session waits for replies, so messages go to late; guarded by tracker.mu
	late     []*notice          // messages to send after the replies; guarded by tracker.mu
	lateSize int                // bytes of late; guarded by tracker.mu
}

// lifecycle is whether a session runs a pipeline or has to end, and the names that its client has set.
type lifecycle struct {
	mu       sync.Mutex // guards the others
	name     string
	libName  string
	libVer   string
	running  bool // a pipeline is being run
	closing  bool // close the connection when the pipeline is done
	draining bool // the server shuts down
}

func (srv *Server) newSession(c *guard) *session {
	s := &session{srv: srv, id: srv.lastID.Add(1), conn: c, face: c.face, secret: c.secret}
	s.out = newOutbox(c.Conn, &srv.stats.netOut, &srv.stats.outputLimit)
	s.out.clock, s.out.active = srv.cfg.Clock, &s.active
	s.out.memory, c.memory = &srv.clientMemory, &srv.clientMemory
	s.own.all = &srv.ownWork
	s.addr = c.RemoteAddr().String()
	s.laddr = c.LocalAddr().String()
	s.client = srv.backend.NewClient(turns.Origin(c))
	s.out.gone = s.client.Gone
	s.created = srv.cfg.Clock()
	s.active.Store(s.created.UnixMilli())
	s.resp.Store(2)
	s.queued.Store(-1)
	s.leave()
	c.policy = s
	return s
}

// begin marks the session as running a pipeline; it reports false if the session may not start one.
func (l *lifecycle) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = !l.draining && !l.closing
	return l.running
}

// end marks the pipeline as done, and reports whether to close the connection now.
func (l *lifecycle) end() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = false
	return l.closing || l.draining
}

// closeAfterReply closes the connection after the replies of the current pipeline; later commands are
// not run.
func (s *session) closeAfterReply() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.out.closeToMessages()
}

func (l *lifecycle) isClosing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closing
}

// isRunning reports whether the session runs a pipeline.
func (l *lifecycle) isRunning() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// drain closes an idle session now and a running one when its pipeline is done; it ends the session's
// wait for a blocking command or a pause.
func (s *session) drain() {
	s.mu.Lock()
	running := s.running
	s.draining = true
	s.mu.Unlock()
	if !running || s.parked.Load() {
		s.out.abort()
		return
	}
	s.unblock()
}

func (l *lifecycle) isDraining() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// These methods implement the guard's policy.

func (s *session) spared(bytes int64) bool {
	return s.noEvict.Load() && s.srv.clientMemory.sparesWith(bytes)
}

func (s *session) exempts(by int64) {
	if s.noEvict.Load() {
		s.srv.clientMemory.exempt.Add(by)
	}
}

func (s *session) userMemory() *userMemory { return &s.account.Load().memory }

func (s *session) needsAuth() bool {
	return !s.authed.Load() && !s.srv.hub.accounts.ruling().open.Load()
}
func (s *session) maxBulk() int64  { return s.srv.params.maxBulk.Load() }
func (s *session) maxQuery() int64 { return s.srv.params.maxQuery.Load() }

// tooLong allows store.MinEntry bytes beyond max-entry-size, as the leader does: for the arguments that a command does not write.
func (s *session) tooLong(bytes int64) (limit int64) {
	if bytes <= store.MinEntry {
		return 0
	}
	if limit = s.srv.backend.MaxEntry(); bytes <= limit+store.MinEntry {
		return 0
	}
	return limit
}

func (s *session) received(n int) {
	s.srv.stats.netIn.Add(int64(n))
	brake.Bring(n)
}

func (s *session) protocolError(text string) {
	s.complain(text)
	s.out.flush()
}

// complain queues the error for a breach of the protocol.
func (s *session) complain(text string) {
	if strings.HasSuffix(text, noTLSHere) {
		s.srv.hands.refuse(s.addr, errors.New("a client speaks TLS to a port without it: it wants an address of --tls-listen"), s.srv.cfg.Clock())
	}
	s.reply(nil, store.Err(errf("ERR %s", text)))
}

func (s *session) protocol() int { return int(s.resp.Load()) }

// subscriber reports whether the session has a subscription: RESP2 restricts its commands then.
func (s *session) subscriber() bool { return s.subbed.Load() > 0 }

// subscriptions returns the number in a confirmation, and updates subbed. The number counts either the shard
// channels, or the channels and patterns. The caller holds Hub.mu.
func (s *session) subscriptions(kind subKind) int64 {
	others := s.subs[subChannel].len() + s.subs[subPattern].len()
	shards := s.subs[subShard].len()
	s.subbed.Store(int32(others + shards))
	if kind == subShard {
		return int64(shards)
	}
	return int64(others)
}

// confirm queues the confirmation of SUBSCRIBE, UNSUBSCRIBE and their like. CLIENT REPLY OFF does not suppress it.
func (s *session) confirm(word string, name store.Reply, count int64) {
	r := store.Reply{Kind: store.Push, Elems: []store.Reply{store.Str(word), name, store.Int(count)}}
	s.out.add(0, func(b []byte) []byte { return appendReply(b, &r, s.protocol()) })
}

// reply queues the reply to a command. An error counts as a failure of cmd, unless cmd is nil.
func (s *session) reply(cmd *store.Command, r store.Reply) {
	if s.built > 0 {
		defer s.builds(-s.built)
	}
	if r.Kind == store.Failure {
		s.srv.stats.failed(cmd, r.Str)
	}
	if r.Kind == store.None || s.muted() {
		return
	}
	room, ok := s.takesRoom(&r)
	if !ok {
		return
	}
	if room > 0 {
		defer s.holds(-room)
	}
	resp := s.protocol()
	size := 0
	if r.Kind == store.Packed || len(r.Elems) > 0 || len(r.Str) > smallBuffer {
		size = encodedSize(&r)
	}
	if s.out.add(size, func(b []byte) []byte { return appendReply(b, &r, resp) }) > freeOutput {
		s.checkOutput(s.srv.cfg.Clock())
	}
}

// freeOutput is how much output Redis does not count: its first buffer.
const freeOutput = 16 << 10

// checkOutput cuts off a client that is beyond its output buffer limit.
func (s *session) checkOutput(now time.Time) {
	s.out.checkLimit(s.srv.params.limitOf(s.class()), now)
}

// muted reports whether CLIENT REPLY suppresses the reply.
func (s *session) muted() bool { return s.silent || s.skip == 1 }

// finish ends a command. CLIENT REPLY SKIP sets skip to 2: one for its own end, one for the command
// that it silences.
func (s *session) finish() {
	if s.skip > 0 {
		s.skip--
	}
	if s.needsAuth() {
		s.countStrange()
	}
}

// strangeCommands is how many commands an unauthenticated client may send in a second. Redis cuts a
// client off that has about 500 of them in flight.
const strangeCommands = 1000

// countStrange cuts off an unauthenticated client that sends too many commands.
func (s *session) countStrange() {
	now := s.srv.cfg.Clock()
	if s.strange.count == 0 || now.Sub(s.strange.since) >= time.Second {
		s.strange.since, s.strange.count = now, 0
	}
	if s.strange.count++; s.strange.count > strangeCommands {
		s.srv.stats.refused.Add(1)
		s.out.cut()
		s.closeAfterReply()
	}
}

// speak changes the protocol and queues the reply that says so, under the hub's lock: a message is in the old protocol and before
// the reply, or in the new one and behind it.
func (s *session) speak(resp int, r store.Reply) store.Reply {
	h := s.srv.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.resp.Store(int32(resp))
	s.reply(nil, r)
	return answered
}

// reset returns the session to the state of a new connection (RESET), but for the protocol.
func (s *session) reset() {
	s.discard()
	s.dropSubscriptions()
	s.srv.monitors.remove(s)
	s.srv.hub.tracker.disable(s)
	s.caching = false
	s.db.Store(0)
	s.replica = false
	s.silent = false // but skip stays: CLIENT REPLY SKIP silences RESET itself
	s.noEvict.Store(false)
	s.noTouch.Store(false)
	s.leave()
	s.setName("")
}

// dropSubscriptions ends all subscriptions without confirmations.
func (s *session) dropSubscriptions() {
	if s.subscriber() {
		s.srv.hub.drop([]*session{s})
	}
}

// class returns the client class for output buffer limits and CLIENT LIST TYPE.
func (s *session) class() string {
	if s.subscriber() {
		return "pubsub"
	}
	return "normal"
}

// local reports whether the client is on this machine.
func (s *session) local() bool {
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		// This is not TCP, but a pipe in this process.
		return true
	}
	ip := net.ParseIP(strings.SplitN(host, "%", 2)[0])
	return ip != nil && ip.IsLoopback()
}
