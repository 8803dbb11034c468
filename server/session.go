package server

import (
	"container/list"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockstep/cluster"
	"lockstep/cluster/brake"
	"lockstep/cluster/turns"
	"lockstep/store"
)

// session is one connection and what it remembers.
type session struct {
	srv     *Server
	id      int64
	client  *cluster.Client
	conn    *guard
	out     *outbox
	addr    string
	laddr   string
	face    Face
	secret  bool // by TLS
	created time.Time

	onLoop bool       // an event loop serves it …
	away   bool       // … but a goroutine runs its commands at present, which may wait
	script *store.Ctx // set if there is no client: see RunInScript

	// Only the session's own goroutine uses these.
	calls   []cluster.Call // waiting to be submitted together
	replies []store.Reply
	unsure  string // hash of the password that it was let in by, if the leader could not be asked
	replica bool   // READONLY on the Cluster listener
	silent  bool   // CLIENT REPLY OFF
	skip    int    // commands until CLIENT REPLY SKIP is over; see finish
	strange struct {
		since time.Time
		count int // commands since then of a client that has not said who it is
	}
	caching bool // CLIENT CACHING has been called for the next command
	holding bool // waiting is set

	multi     *transaction // since MULTI
	executing *transaction // of an EXEC that is not answered yet
	watchList []cluster.Watched
	watching  map[watchedKey]bool // the same
	watchSize int
	kept      int   // bytes of what is queued, being run and watched
	built     int64 // bytes of a reply that is being built

	// Others look at these, for CLIENT LIST and messages.
	db      atomic.Int32
	resp    atomic.Int32
	authed  atomic.Bool
	account atomic.Pointer[account] // nil if there is no client
	noEvict atomic.Bool
	noTouch atomic.Bool
	active  atomic.Int64 // Unix ms of the last pipeline
	command atomic.Pointer[store.Command]
	subbed  atomic.Int32 // subscriptions of all kinds
	queued  atomic.Int32 // commands queued since MULTI; -1 without one
	held    holdings
	blocked atomic.Pointer[cluster.Blocked]
	blocks  atomic.Int64 // bytes of that command
	parked  atomic.Bool  // held back by CLIENT PAUSE
	left    atomic.Bool  // the client has gone while a goroutine had the session

	stranger *list.Element // its place in Server.strangers; guarded by Server.mu

	monitoring atomic.Bool
	tracking   atomic.Pointer[tracking] // nil: off
	waiting    bool                     // for replies; guarded by tracker.mu
	late       [][]string               // messages till then; guarded by tracker.mu
	lateSize   int                      // bytes of those; guarded by tracker.mu
	prefixSize int64                    // bytes of its prefixes; guarded by tracker.mu

	subs [3]map[string]struct{} // guarded by Hub.mu

	mu       sync.Mutex
	name     string
	libName  string
	libVer   string
	running  bool // a pipeline is being run
	closing  bool // close when it is done
	draining bool // the server shuts down
}

func (srv *Server) newSession(c *guard) *session {
	s := &session{srv: srv, id: srv.lastID.Add(1), conn: c, face: c.face, secret: c.secret}
	s.out = newOutbox(c.Conn, &srv.stats.netOut, &srv.stats.outputLimit)
	s.out.memory, c.memory = &srv.clientMemory, &srv.clientMemory
	s.addr = c.RemoteAddr().String()
	s.laddr = c.LocalAddr().String()
	s.client = srv.backend.NewClient(turns.Origin(c))
	s.created = srv.cfg.Clock()
	s.active.Store(s.created.UnixMilli())
	s.resp.Store(2)
	s.queued.Store(-1)
	s.leave()
	for i := range s.subs {
		s.subs[i] = map[string]struct{}{}
	}
	c.policy = s
	return s
}

// begin marks the session busy with a pipeline; false if it may not start.
func (s *session) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = !s.draining && !s.closing
	return s.running
}

// end reports whether the connection is to be closed now.
func (s *session) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = false
	return s.closing || s.draining
}

// closeAfterReply ends the connection when the current pipeline's replies
// have been sent; later commands are not run.
func (s *session) closeAfterReply() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
}

func (s *session) isClosing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closing
}

// isRunning reports whether a pipeline is being run.
func (s *session) isRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// drain closes an idle session now and a busy one when its pipeline is done; it
// waits for nothing any more.
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

func (s *session) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// The guard's policy.

func (s *session) evictable() bool { return !s.noEvict.Load() }

func (s *session) needsAuth() bool { return !s.authed.Load() && !s.srv.hub.accounts.open.Load() }
func (s *session) maxBulk() int64  { return s.srv.params.maxBulk.Load() }
func (s *session) maxQuery() int64 { return s.srv.params.maxQuery.Load() }

func (s *session) received(n int) {
	s.srv.stats.netIn.Add(int64(n))
	brake.Bring(n)
}

func (s *session) protocolError(text string) {
	s.complain(text)
	s.out.flush()
}

// complain queues the answer to a breach of the protocol.
func (s *session) complain(text string) {
	if strings.HasSuffix(text, noTLSHere) {
		s.srv.hands.refuse(s.addr, errors.New("a client speaks TLS to a port without it: it wants an address of --tls-listen"), s.srv.cfg.Clock())
	}
	s.reply(nil, store.Err(errf("ERR %s", text)))
}

func (s *session) protocol() int { return int(s.resp.Load()) }

// subscriber reports whether RESP2's restrictions for subscribers apply.
func (s *session) subscriber() bool { return s.subbed.Load() > 0 }

// subscriptions is the number that a confirmation carries: shard channels are
// counted apart. Hub.mu is held.
func (s *session) subscriptions(kind subKind) int64 {
	s.subbed.Store(int32(len(s.subs[subChannel]) + len(s.subs[subPattern]) + len(s.subs[subShard])))
	if kind == subShard {
		return int64(len(s.subs[subShard]))
	}
	return int64(len(s.subs[subChannel]) + len(s.subs[subPattern]))
}

// confirm sends a subscription message. CLIENT REPLY OFF does not hold it.
func (s *session) confirm(word string, name store.Reply, count int64) {
	r := store.Reply{Kind: store.Push, Elems: []store.Reply{store.Str(word), name, store.Int(count)}}
	s.out.add(func(b []byte) []byte { return appendReply(b, &r, s.protocol()) })
}

// reply queues the answer to a command for sending. cmd is nil for faults of
// the protocol.
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
	if !s.hasRoom(&r) {
		return
	}
	resp := s.protocol()
	size := 0
	if r.Kind == store.Packed || len(r.Elems) > 0 {
		size = encodedSize(&r)
	}
	if s.out.add(func(b []byte) []byte { return appendReply(slices.Grow(b, size), &r, resp) }) > freeOutput {
		s.checkOutput(s.srv.cfg.Clock())
	}
}

// freeOutput is how much output Redis does not count: its first buffer.
const freeOutput = 16 << 10

// checkOutput cuts off a client that is past its output buffer limit.
func (s *session) checkOutput(now time.Time) {
	s.out.checkLimit(s.srv.params.limitOf(s.class()), now)
}

// muted reports whether CLIENT REPLY holds replies back.
func (s *session) muted() bool { return s.silent || s.skip == 1 }

// finish ends a command. CLIENT REPLY SKIP sets skip to 2: one for itself, one
// for the command that it silences.
func (s *session) finish() {
	if s.skip > 0 {
		s.skip--
	}
	if s.needsAuth() {
		s.countStrange()
	}
}

// strangeCommands is how many commands a client may give in a second that has not said who it is. Redis cuts one off
// that has about 500 of them on their way at once.
const strangeCommands = 1000

// countStrange cuts off a client that gives too many.
func (s *session) countStrange() {
	now := s.srv.cfg.Clock()
	if s.strange.count == 0 || now.Sub(s.strange.since) >= time.Second {
		s.strange.since, s.strange.count = now, 0
	}
	if s.strange.count++; s.strange.count > strangeCommands {
		s.srv.clientMemory.cut.Add(1)
		s.out.abort()
		s.closeAfterReply()
	}
}

// reset returns to the state of a new connection (RESET).
func (s *session) reset() {
	s.discard()
	s.dropSubscriptions()
	s.srv.monitors.remove(s)
	s.srv.hub.tracker.disable(s)
	s.caching = false
	s.db.Store(0)
	s.resp.Store(2)
	s.replica = false
	s.silent = false // but not a SKIP, which silences RESET itself
	s.noEvict.Store(false)
	s.noTouch.Store(false)
	s.leave()
	s.setName("")
}

// dropSubscriptions unsubscribes from everything without a word.
func (s *session) dropSubscriptions() {
	if !s.subscriber() {
		return
	}
	for kind := range s.subs {
		for _, name := range s.srv.hub.of(s, subKind(kind)) {
			s.srv.hub.unsubscribe(s, subKind(kind), name, true)
		}
	}
}

// class is the client class of output buffer limits and CLIENT LIST TYPE.
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
		// Not TCP: a pipe inside this process.
		return true
	}
	ip := net.ParseIP(strings.SplitN(host, "%", 2)[0])
	return ip != nil && ip.IsLoopback()
}
