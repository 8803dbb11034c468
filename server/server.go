package server

import (
	"cmp"
	"container/list"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cluster/turns"
	"github.com/lockstep-io/lockstep/store"
)

// Server serves Redis clients.
type Server struct {
	cfg      Config
	backend  Backend
	table    *store.Table
	numbers  uint64 // what cluster.ClientNumbers returns for this process
	handlers map[*store.Command]handler
	inPlace  map[*store.Command]bool            // commands whose handlers never wait, so that event loops may run them
	heavy    map[*store.Command]cluster.OwnKind // commands of which only one of each kind runs at a time (alone.go)
	kills    map[*store.Command]bool            // commands that end a script
	grants   map[*store.Command]bool            // commands whose replies may grant a lease
	sight    map[*store.Command]bool            // commands that tell who waits for a lock
	lockInfo *store.Command
	lockList *store.Command
	execCmd  *store.Command // EXEC and WATCH have handlers, but may need the leader, too (ask)
	watchCmd *store.Command
	debugCmd *store.Command

	trackingCmd *store.Command
	locks       lockSessions
	tickets     lockTickets
	// The commands of lockstep's own locks; nil for a Sentinel.
	acquireCmd, renewCmd, releaseCmd *store.Command
	hub                              *Hub
	pause                            *pause
	params                           *params
	stats                            *stats
	aclLog                           aclLog

	clientMemory clientMemory
	ownWork      allOwnWork
	submitted    atomic.Int64 // commands in the submissions that wait for their replies
	learning     sync.Once
	learned      chan struct{} // closed when learnUsers has returned: this node knows the users, or stops
	docs         *commandDocs
	monitors     monitors
	slow         slowlog
	spikes       spikes
	watch        *watcher // nil unless this is a Sentinel
	started      time.Time
	lastID       atomic.Int64

	debugInScripts atomic.Bool // see AllowsInScript
	looks          sharedLook
	pulse          pulse
	patient        atomic.Int64  // the result of Server.patience, in nanoseconds
	garbage        garbage       // what strangers and newcomers leave
	largeGarbage   garbage       // what senders of large commands leave
	bulky          chan struct{} // full while as many goroutines copy large replies as may do so at once

	hands  *handshakes
	seldom *seldomLines // the log lines that strangers can cause

	saidNoUring sync.Once // makes the log say only once why each reply needs a system call of its own …
	saidNoLimit sync.Once // … and that the operating system refuses to limit what it keeps for clients

	lastSave atomic.Int64 // Unix seconds
	saving   atomic.Bool
	// saveFailed is true if the last snapshot that a client asked for has failed.
	saveFailed atomic.Bool
	backups    backups
	purging    purging
	rates      struct{ commands, in, out rate }

	mu        sync.Mutex
	sessions  map[int64]*session
	strangers strangers
	departed  list.List // of *session: clients that have hung up but whose sessions go on, in the order in which they hung up (hungUp)
	cutOff    int       // how many sessions have been cut off to make room for new ones, but have not ended yet
	waiting   int       // how many new connections wait for room (makeRoom)
	listeners map[net.Listener]struct{}
	closing   bool

	firstMemory, peakMemory uint64        // the first and the highest memory use in bytes; see noteMemory
	empty                   *sync.Cond    // broadcast when a session ends; its lock is mu
	left                    chan struct{} // wakes a new connection that waits for room
	drained                 chan struct{} // closed at the end of Shutdown: the connections that are left may be cut
	stop                    chan struct{} // closed when Shutdown begins
}

// New makes a server. It panics on a configuration that Validate refuses: the caller should have called
// Validate.
func New(cfg Config, backend Backend, table *store.Table) *Server {
	if err := cfg.Validate(); err != nil {
		panic(fmt.Sprintf("server: %v", err))
	}
	if cfg.TLS == nil {
		cfg.TLS = &Certificates{log: cfg.Log, turns: turns.Half(), unused: true}
	}
	params := newParams(&cfg, backend)
	srv := &Server{
		cfg:       cfg,
		backend:   backend,
		table:     table,
		hub:       cfg.Hub,
		params:    params,
		stats:     newStats(table, params),
		started:   cfg.Clock(),
		sessions:  map[int64]*session{},
		strangers: strangers{met: map[netip.Addr]struct{}{}},
		listeners: map[net.Listener]struct{}{},
		drained:   make(chan struct{}),
		stop:      make(chan struct{}),
		bulky:     make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
		learned:   make(chan struct{}),
	}
	srv.patient.Store(int64(cmp.Or(cfg.patience, catchUpTimeout)))
	srv.garbage.scarce, srv.largeGarbage.scarce = cfg.scarce, cfg.scarce
	srv.clientMemory.limit = &srv.params.clientLimit
	srv.clientMemory.relieve = srv.evictClients
	srv.clientMemory.evictions = seldomLine{log: cfg.Log, level: slog.LevelWarn, msg: "clients were cut off: all clients together held more than maxmemory-clients"}
	srv.hub.tracker.setMaxSize(func() int64 { return srv.params.clientLimit.Load() / 2 })
	srv.hands = newHandshakes(cfg.TLS, cfg.Log, cfg.MaxHandshakes)
	srv.seldom = newSeldomLines(cfg.Log)
	srv.pause = newPause(cfg.Clock, srv.backend, srv.stop)
	srv.empty, srv.left = sync.NewCond(&srv.mu), make(chan struct{}, 1)
	srv.lastSave.Store(srv.started.Unix())
	srv.noteMemory(srv.readMemory())
	srv.handlers = bindHandlers(table)
	srv.inPlace = findInPlace(srv.handlers)
	srv.heavy = findHeavy(srv.handlers)
	srv.kills = findKills(srv.handlers)
	srv.grants = findGrants(table)
	srv.sight = map[*store.Command]bool{table.Lookup([]byte("lock.info")): true, table.Lookup([]byte("lock.waiters")): true, table.Lookup([]byte("lock.list")): true}
	srv.lockInfo, srv.lockList = table.Lookup([]byte("lock.info")), table.Lookup([]byte("lock.list"))
	srv.execCmd, srv.watchCmd, srv.debugCmd = table.Lookup([]byte("exec")), table.Lookup([]byte("watch")), table.Lookup([]byte("debug"))
	srv.acquireCmd, srv.renewCmd, srv.releaseCmd = table.Lookup([]byte("lock.acquire")), table.Lookup([]byte("lock.renew")), table.Lookup([]byte("lock.release"))
	srv.trackingCmd, _ = table.Resolve([][]byte{[]byte("client"), []byte("tracking")})
	srv.docs = newCommandDocs(table)
	srv.purging.do = debug.FreeOSMemory
	srv.numbers = cluster.ClientNumbers(cfg.NodeID, cfg.RunID)
	if table.Lookup([]byte("acl")) != nil { // this is no Sentinel
		srv.hub.data.Store(srv)
		srv.hub.locks.NameClients(backend.ClientOf)
	}
	srv.hub.accounts.bind(srv)
	if table.Lookup([]byte("acl")) == nil {
		srv.hub.accounts.setCurrent() // this is a Sentinel: its own users never change
	}
	go srv.cron()
	go cfg.TLS.keep(srv.stop)
	return srv
}

// Serve accepts connections until Shutdown closes the listener, and returns nil at the end of Shutdown.
func (srv *Server) Serve(ln net.Listener) error { return srv.ServeAs(ln, FacePlain, false) }

// ServeAs is Serve for a listener whose clients see the mode of Redis in face. If secret is true, they speak TLS.
func (srv *Server) ServeAs(ln net.Listener, face Face, secret bool) error {
	srv.mu.Lock()
	if srv.closing {
		srv.mu.Unlock()
		return ln.Close()
	}
	srv.listeners[ln] = struct{}{}
	srv.mu.Unlock()
	srv.learning.Do(func() {
		go srv.feelPulse()
		go func() {
			defer close(srv.learned)
			srv.learnUsers()
		}()
	})
	srv.limitWindow(ln)
	if served, err := srv.serveLoops(ln, face, secret); served {
		return err
	}
	if secret {
		ln = srv.newSecureListener(ln, srv.hands.certs.Config)
	}
	return redcon.Serve(&listener{Listener: ln, srv: srv, face: face, secret: secret}, srv.serve, srv.accept, srv.gone)
}

// ServeConn serves one connection until it ends.
func (srv *Server) ServeConn(c net.Conn) error {
	gone := make(chan struct{})
	var once sync.Once
	end := func() { once.Do(func() { close(gone) }) }
	accept := func(conn redcon.Conn) bool {
		ok := srv.accept(conn)
		if !ok {
			end()
		}
		return ok
	}
	return redcon.Serve(&single{conn: c, gone: gone}, srv.serve, accept, func(conn redcon.Conn, err error) {
		srv.gone(conn, err)
		end()
	})
}

// accept decides whether redcon may keep a connection.
func (srv *Server) accept(conn redcon.Conn) bool {
	s, refusal, in := srv.enter(conn.NetConn().(*guard))
	if in {
		conn.SetContext(s)
		return true
	}
	if refusal != "" {
		refused := store.Err(refusal)
		s.out.add(0, func(b []byte) []byte { return appendReply(b, &refused, 2) })
		s.out.flush()
	}
	return false
}

// enter makes a session for a connection. If in is false, the connection is refused, and refusal is the error (empty: the server is
// closing).
func (srv *Server) enter(g *guard) (s *session, refusal store.Error, in bool) {
	srv.stats.connections.Add(1)
	s = srv.newSession(g)
	refusal, in = srv.register(s)
	if in && !s.local() && srv.hub.accounts.ruling().protected() {
		srv.unregister(s)
		refusal, in = errDenied, false
	}
	if !in {
		srv.stats.refused.Add(1)
	}
	return s, refusal, in
}

// register adds a session, unless there are too many sessions or the server is closing.
func (srv *Server) register(s *session) (refusal store.Error, in bool) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	room := srv.makeRoom()
	switch {
	case srv.closing:
		return "", false
	case !room:
		return errMaxClients, false
	}
	srv.sessions[s.id] = s
	srv.strangers.enter(s)
	return "", true
}

// roomPatience is how long a new client waits for the end of a session that has been cut off.
const roomPatience = time.Second

// makeRoom reports whether there is room for one more session, or the server is closing. At maxclients it cuts off a client that has hung
// up or has not authenticated. Until that session ends, there may be an eighth more sessions than maxclients.
//
// If that gives no room, makeRoom waits for sessions that were cut off to end, for roomPatience at most. No more than handshakes.fromOne
// clients wait. The caller holds mu; makeRoom releases mu while it waits.
func (srv *Server) makeRoom() bool {
	var patience <-chan time.Time
	defer func() {
		if patience != nil {
			srv.waiting--
			srv.signalLeft() // there may be room for another connection that waits
		}
	}()
	for {
		n, limit := int64(len(srv.sessions)), srv.params.maxClients.Load()
		switch {
		case srv.closing || n < limit:
			return true
		case n <= limit+limit/8 && (n-int64(srv.cutOff) < limit || srv.cutDeparted() || srv.cutStranger()):
			return true
		case srv.cutOff == 0 || patience == nil && srv.waiting >= srv.hands.fromOne():
			return false
		case patience == nil:
			timer := time.NewTimer(roomPatience)
			defer timer.Stop()
			patience = timer.C
			srv.waiting++
		}
		srv.mu.Unlock()
		late := false
		select {
		case <-srv.left:
		case <-patience:
			late = true
		}
		srv.mu.Lock()
		if late {
			return false
		}
	}
}

// cutDeparted cuts off the earlier half of Server.departed: many at once, because one script may hold up all their sessions. The caller
// holds mu.
func (srv *Server) cutDeparted() bool {
	n := (srv.departed.Len() + 1) / 2
	for range n {
		srv.cut(srv.departed.Remove(srv.departed.Front()).(*session))
	}
	return n > 0
}

// cut cuts off a session to make room for a new one. The caller holds mu.
func (srv *Server) cut(s *session) {
	srv.stats.refused.Add(1)
	s.cutOff = true
	srv.cutOff++
	go func() {
		s.client.Gone() // out.cut does not call Gone if a write has failed before
		s.out.cut()
	}()
}

// hungUp notes that a client has hung up. The server still answers what the client has sent, until makeRoom cuts the client off.
func (srv *Server) hungUp(s *session) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if !s.cutOff && s.departed == nil {
		s.departed = srv.departed.PushBack(s)
	}
}

func (srv *Server) unregister(s *session) {
	srv.locks.end(s)
	srv.tickets.end(s)
	srv.hub.tracker.disable(s)
	s.conn.drop()
	srv.clientMemory.strangers.Add(-s.conn.strange.Swap(0))
	s.leavesMemory()
	s.client.Encoded()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	delete(srv.sessions, s.id)
	s.waitsIn(nil)
	if s.departed != nil {
		srv.departed.Remove(s.departed)
	}
	if s.cutOff {
		srv.cutOff--
	}
	srv.signalLeft()
	srv.empty.Broadcast()
}

// signalLeft wakes one of the connections that wait for room (makeRoom). The caller holds mu.
func (srv *Server) signalLeft() {
	if srv.waiting == 0 {
		return
	}
	select {
	case srv.left <- struct{}{}:
	default:
	}
}

// redcon calls the method gone when a connection has ended. The error does not matter: the client left, or the server closed the
// connection.
func (srv *Server) gone(conn redcon.Conn, _ error) {
	s, ok := conn.Context().(*session)
	if !ok {
		return
	}
	s.abandon()
	s.out.abort()
	srv.takeLeave(s)
}

// takeLeave ends what a session has begun, and forgets the session. With many subscriptions or tracking prefixes, that takes long.
func (srv *Server) takeLeave(s *session) {
	srv.monitors.remove(s)
	srv.leaveBackup(s)
	s.dropSubscriptions()
	srv.unregister(s)
}

// session returns the session with an id; nil if there is none.
func (srv *Server) session(id int64) *session {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return srv.sessions[id]
}

// each returns the sessions, sorted by id.
func (srv *Server) each() []*session {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	list := make([]*session, 0, len(srv.sessions))
	for _, s := range srv.sessions {
		list = append(list, s)
	}
	sortSessions(list)
	return list
}

func (srv *Server) clients() int {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return len(srv.sessions)
}

// cronPeriod is how often cron runs: it looks for clients that are idle, read too slowly or hold too much memory, and measures rates
// for INFO.
const cronPeriod = time.Second

func (srv *Server) cron() {
	tick := time.NewTicker(cronPeriod)
	defer tick.Stop()
	for {
		select {
		case <-srv.stop:
			return
		case <-tick.C:
			srv.checkClients(srv.cfg.Clock())
			srv.followMaxMemory()
			srv.evictClients()
			for _, l := range srv.seldomLines() {
				l.sayRest(srv.cfg.Clock())
			}
			srv.rates.commands.sample(srv.stats.commands.Load())
			srv.rates.in.sample(srv.stats.netIn.Load())
			srv.rates.out.sample(srv.stats.netOut.Load())
		}
	}
}

// checkClients disconnects clients beyond their output buffer limit or timeout. Subscribers, monitors and clients that wait for a reply
// or a lock are never idle.
func (srv *Server) checkClients(now time.Time) {
	timeout := time.Duration(srv.params.timeout.Load()) * time.Second
	for _, s := range srv.each() {
		if !s.out.checkLimit(srv.params.limitOf(s.class()), now) {
			continue
		}
		if timeout > 0 && !s.subscriber() && !s.monitoring.Load() && !s.isRunning() && !s.waits() && s.tickets.Load() == 0 && now.Sub(time.UnixMilli(s.active.Load())) > timeout {
			s.drain()
		}
	}
}

// Shutdown closes the listeners, lets running pipelines finish, and closes the connections. When ctx ends, Shutdown cuts the remaining
// connections and returns the error of ctx.
func (srv *Server) Shutdown(ctx context.Context) error {
	srv.mu.Lock()
	if srv.closing {
		srv.mu.Unlock()
		return nil
	}
	srv.closing = true
	close(srv.stop)
	var first error
	for ln := range srv.listeners {
		if err := ln.Close(); err != nil && first == nil {
			first = err
		}
	}
	srv.mu.Unlock()
	srv.hands.stop()

	for _, s := range srv.each() {
		s.drain()
	}
	disarm := context.AfterFunc(ctx, func() {
		for _, s := range srv.each() {
			s.out.abort()
		}
		srv.mu.Lock()
		defer srv.mu.Unlock()
		srv.empty.Broadcast()
	})
	defer disarm()
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for len(srv.sessions) > 0 && ctx.Err() == nil {
		srv.empty.Wait()
	}
	close(srv.drained)
	if len(srv.sessions) > 0 {
		return ctx.Err()
	}
	return first
}
