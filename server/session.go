package server

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cluster/turns"
	"github.com/lockstep-io/lockstep/store"
)

// session is the state of a connection. Its embedded structs differ in which goroutines may use them. Some sessions have no client
// (RunInScript).
type session struct {
	// Each of these fields is set once, except the field away.
	srv     *Server
	id      int64
	client  *cluster.Client
	conn    *guard
	out     *outbox
	addr    string
	laddr   string
	unix    bool       // it came by a Unix socket
	from    netip.Addr // the client's address; for IPv6, the network of this address
	face    Face
	secret  bool // the client speaks TLS
	created time.Time
	onLoop  bool       // an event loop serves the connection …
	away    bool       // … but a goroutine runs its commands now, because they may wait
	script  *store.Ctx // the call by a script that this session runs: see RunInScript; nil for clients

	answering
	transacting
	observed
	messaging
	lifecycle

	// Server.mu guards these:
	stranger *list.Element // the session's place in the list among, which is one of Server.strangers; nil: it is in no list
	among    *list.List
	familiar bool          // somebody had logged in at the client's address when the session began; it does not change
	departed *list.Element // the session's place in Server.departed; nil: never there
	cutOff   bool          // the session was cut off to make room for a new one

	ticketless bool         // the session has ended, and gets no more tickets; lockTickets.mu guards this
	tickets    atomic.Int32 // how many tickets the session has
}

// answering is the state that the commands of a session use and change. Only the goroutine that runs these
// commands uses it.
type answering struct {
	calls   []cluster.Call // waiting to be submitted together
	replies []store.Reply
	grants  bool // the output may have replies that grant leases (sendGrants)
	// wasBusy says that a command of the pipeline got BUSY. As in Redis, later ones get BUSY, too: a SET behind a refused SELECT would use
	// the wrong database.
	wasBusy bool
	unsure  string // hash of the login's password, if this node accepted the login before it knew all that the leader knows (sure)
	proof   string // at a Sentinel: hash of the login's password
	replica bool   // the client has sent READONLY on the Cluster listener
	silent  bool   // the client has sent CLIENT REPLY OFF
	skip    int    // commands until CLIENT REPLY SKIP is over; see finish
	strange struct {
		since time.Time
		count int // commands of an unauthenticated client since then
	}
	own     ownWork
	checked int   // steps of the checks before commands (rights, hash slots) that countChecks has not added to own yet
	caching bool  // CLIENT CACHING has been called for the next command
	holding bool  // the tracker holds back messages until the replies to the collected calls are in the output
	reading int   // how many keys the collected calls, or the EXEC, read; counted only while the client tracks
	built   int64 // bytes of the reply under construction
	spoke   bool  // the client has sent something
}

// observed is what other goroutines read, for CLIENT LIST and messages.
type observed struct {
	messages   atomic.Int64 // messages to the client since lighten last counted them
	db         atomic.Int32
	resp       atomic.Int32
	authed     atomic.Bool
	account    atomic.Pointer[account] // nil if there is no client
	noEvict    atomic.Bool
	noTouch    atomic.Bool
	active     atomic.Int64 // Unix ms: when the last pipeline began, or the operating system last took output
	command    atomic.Pointer[store.Command]
	subbed     atomic.Int32 // subscriptions of all kinds
	queued     atomic.Int32 // commands queued since MULTI; -1 outside MULTI
	held       holdings
	blocked    atomic.Pointer[cluster.Blocked]
	blocks     atomic.Int64                // bytes of the blocked command
	replicas   atomic.Pointer[replicaWait] // the client's WAIT or WAITAOF; nil: there is none, or CLIENT UNBLOCK has ended it
	parked     atomic.Bool                 // the client's command waits for the end of a CLIENT PAUSE
	left       atomic.Bool                 // the client left while a goroutine ran its commands
	monitoring atomic.Bool
	tracking   atomic.Pointer[tracking] // nil: off
}

// messaging holds the subscriptions of a session, and the messages that it gets after its replies.
type messaging struct {
	subs     [3]table[struct{}] // guarded by Hub.mu
	waiting  bool               // the session waits for replies, so the tracker puts messages into late; guarded by tracker.mu
	late     []*notice          // messages to send after the replies; guarded by tracker.mu
	lateSize int                // bytes of late; guarded by tracker.mu
}

// lifecycle says whether a session runs a pipeline or has to end. It also has the names that the client has set.
type lifecycle struct {
	mu       sync.Mutex // guards the other fields
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
	if s.unix = c.LocalAddr().Network() == "unix"; s.unix {
		s.laddr += ":0" // both addresses as in Redis
		s.addr = s.laddr
	}
	s.from = turns.Origin(c)
	s.client = srv.backend.NewClient(s.from)
	s.out.gone = s.client.Gone
	s.created = srv.cfg.Clock()
	s.active.Store(s.created.UnixMilli())
	s.resp.Store(2)
	s.queued.Store(-1)
	s.leave()
	c.policy = s
	return s
}

// begin marks the session as running a pipeline. It reports false, and marks nothing, if the session has to end.
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

// closeAfterReply makes the connection end after the replies to the commands that have run. The later commands
// of the pipeline are not run.
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

// drain closes the connection after the running pipeline. It does not wait for a blocking command or the end of a CLIENT PAUSE.
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

// The methods from here to protocolError implement the interface policy. The guard calls them.

func (s *session) spared(bytes int64) bool {
	return s.noEvict.Load() && s.srv.clientMemory.sparesWith(bytes)
}

func (s *session) exempts(by int64) {
	if s.noEvict.Load() {
		s.srv.clientMemory.exempt.Add(by)
	}
}

func (s *session) userMemory() *userMemory { return &s.account.Load().memory }

// batch implements policy.
func (s *session) batch() int {
	if s.needsAuth() {
		return unauthBatch
	}
	return s.srv.callsAtOnce()
}

func (s *session) needsAuth() bool {
	return !s.authed.Load() && !s.srv.hub.accounts.ruling().open.Load()
}
func (s *session) maxBulk() int64  { return s.srv.params.maxBulk.Load() }
func (s *session) maxQuery() int64 { return s.srv.params.maxQuery.Load() }

// tooLong returns 0, or the limit max-entry-size that a command's arguments exceed. Like the leader, it allows store.MinEntry bytes more.
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
	s.spoke = s.spoke || n > 0
	switch { // a loop does not wait for the collector because of strangers or large commands
	case s.onLoop && s.needsAuth():
		s.srv.garbage.bytes.Add(2 * int64(n)) // twice, because buffers grow
	case s.onLoop && s.conn.large != nil: // the method brings counts these bytes
	default:
		brake.Bring(n)
	}
}

func (s *session) brings(n int) {
	if s.onLoop {
		s.srv.largeGarbage.bytes.Add(2 * int64(n)) // twice, because lists grow, and the node copies a command to forward it
		return
	}
	brake.Bring(n)
}

func (s *session) waitsForInput() { s.srv.hears(s) }

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

// subscriber reports whether the session has a subscription. With one, a RESP2 client may run only a few commands.
func (s *session) subscriber() bool { return s.subbed.Load() > 0 }

// subscriptions updates subbed, and returns the number for a confirmation: of shard channels, or of channels and patterns. The caller
// holds Hub.mu.
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
	waits := 0
	if r.Kind == store.Bulk && len(r.Str) > largeOutput && s.mayWait() {
		waits = s.out.addPieces(s.srv.bulkyReply(r.Str, s.out.isOver))
	} else {
		waits = s.out.add(size, func(b []byte) []byte { return appendReply(b, &r, resp) })
	}
	if waits > freeOutput {
		s.checkOutput(s.srv.cfg.Clock())
	}
}

// bulkyPiece is the most that bulkyReply copies at once, because nothing else runs on the processor meanwhile.
const bulkyPiece = 256 << 10

// bulkyReply encodes a large bulk string, in pieces. After each, goroutines that work for other clients come first. It leaves off when the
// function over reports that nobody waits for the reply.
func (srv *Server) bulkyReply(s string, over func() bool) (pieces [][]byte) {
	srv.bulky <- struct{}{}
	defer func() { <-srv.bulky }()
	header := appendInt(nil, '$', int64(len(s)))
	for len(s) > 0 && !over() {
		n := min(len(s), bulkyPiece)
		b := make([]byte, 0, len(header)+n+len("\r\n"))
		b = append(append(b, header...), s[:n]...)
		if header, s = nil, s[n:]; s == "" {
			b = append(b, '\r', '\n')
		}
		pieces = append(pieces, b)
		runtime.Gosched()
	}
	return pieces
}

// reply checks the output buffer limit only beyond freeOutput bytes, because Redis does not count its first buffer of this size for each
// client.
const freeOutput = 16 << 10

// checkOutput cuts off a client that is beyond its output buffer limit.
func (s *session) checkOutput(now time.Time) {
	s.out.checkLimit(s.srv.params.limitOf(s.class()), now)
}

// muted reports whether CLIENT REPLY suppresses the reply.
func (s *session) muted() bool { return s.silent || s.skip == 1 }

// finish ends each command. CLIENT REPLY SKIP sets skip to 2, so that skip is 1 during the next command, whose reply is suppressed.
func (s *session) finish() {
	if s.skip > 0 {
		s.skip--
	}
	if s.needsAuth() {
		s.countStrange()
	}
}

// strangeCommands is how many commands an unauthenticated client may send in a second. Redis allows about 500 in flight.
const strangeCommands = 1000

// countStrange counts a command of an unauthenticated client, and cuts the client off after more than strangeCommands in a second.
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

// speak changes the protocol and queues the reply that says so, both under Hub.mu, so only later messages have the new protocol.
func (s *session) speak(resp int, r store.Reply) store.Reply {
	h := s.srv.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	s.resp.Store(int32(resp))
	s.reply(nil, r)
	return answered
}

// reset gives the session the state of a new connection, except the protocol (doReset) and, as in Redis, the names from CLIENT SETINFO.
func (s *session) reset() {
	s.discard()
	s.dropSubscriptions()
	s.srv.monitors.remove(s)
	s.srv.hub.tracker.disable(s)
	s.caching = false
	s.db.Store(0)
	s.replica = false
	s.silent = false // but skip stays: CLIENT REPLY SKIP also suppresses the reply to RESET
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

// local reports whether the client uses a loopback address or a Unix socket of this machine, or is in this process.
func (s *session) local() bool {
	if s.unix {
		return true
	}
	host, _, err := net.SplitHostPort(s.addr)
	if err != nil {
		// This is not TCP, but a pipe in this process.
		return true
	}
	ip := net.ParseIP(strings.SplitN(host, "%", 2)[0])
	return ip != nil && ip.IsLoopback()
}
