package server

import (
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// On Linux, a few event loops serve all TCP connections of clients. Each loop has an epoll instance of its own. With a goroutine for each
// connection, every command would cost more, and commands would reach the backend one by one.
//
// In a round, a loop fetches the events, reads and parses the input, submits the commands, makes the backend run them, and writes the
// replies. If a script holds the loop's goroutine for long, the watcher gives the loop to another one (watch_linux.go).
//
// The goroutine that runs a loop is its owner. Without work, the owner waits in epoll_wait on an ephemeral node. On a durable node it
// parks, because other goroutines need the processor that a thread in a system call would keep.
//
// Each connection is registered once, for edge-triggered events of all kinds; loopConn.readable keeps whether there may be input.
//
// The flag --without event-loops turns the loops off.

// loop serves connections. One goroutine at a time owns it; fields that mu does not guard belong to the
// owner.
type loop struct {
	srv   *Server
	epoll int
	file  *os.File              // the epoll instance, if the runtime polls it
	parks syscall.RawConn       // parks the owner until the file is ready
	look  func(fd uintptr) bool // the method poll, which the method sleep passes to the field parks
	bell  int                   // an eventfd that wakes the owner
	uring *uring                // sends for many connections at once; nil: turned off, not allowed by the system, or failed

	mu     sync.Mutex  // taken after all other locks
	queue  []*loopConn // connections with news
	asleep bool        // the owner waits for events
	over   bool        // the loop ends when its last connection is gone
	ended  bool
	owner  int // the number of the goroutine that owns the loop; the first owner is 0

	held     atomic.Uint64 // odd while the owner is in Backend.FlushWatched
	watching atomic.Bool
	stir     chan struct{} // wakes the watcher before the owner enters Backend.FlushWatched
	stop     chan struct{} // closed when the loop has ended

	spare     []*loopConn // memory of the previous queue, for the next one
	conns     []*loopConn // by descriptor
	count     int         // number of connections
	ready     []*loopConn // idle connections for the next round, mostly with unread input
	others    []*loopConn // memory of the previous ready list, for the next one
	strangers share       // clients that have not authenticated, or send lines that make no command
	yielding  yielding
	slow      share // connections that are slow to serve (loopConn.isSlow)
	yields    bool  // the loop has served some of them in this round
	incoming  incoming
	lightAt   time.Time   // when the method turn last served a light client: one in no share, whose loopConn.laden is aloneAfter ago or longer
	answered  []*loopConn // connections with replies to be sent at the end of the round
	pushed    []*loopConn // connections with messages to be sent
	sending   []*loopConn // connections whose output uring sends
	submitted bool        // commands have been submitted: Backend.FlushWatched must follow
	now       time.Time   // the time when the round began, or when its last Backend.FlushWatched returned
	events    [256]unix.EpollEvent
	happened  int // how many events the last system call has stored in the field events
}

func newLoop(srv *Server) (*loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, err
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		_ = unix.Close(epoll)
		return nil, err
	}
	l := &loop{srv: srv, epoll: epoll, bell: bell, stir: make(chan struct{}, 1), stop: make(chan struct{})}
	l.strangers.loop, l.slow.loop, l.incoming.loop = l, l, l
	if !srv.cfg.NoUring {
		if l.uring, err = newUring(); err != nil {
			srv.saidNoUring.Do(func() { srv.cfg.Log.Info("each reply is sent by a system call of its own", "reason", err) })
		}
	}
	if srv.cfg.Durable {
		if err := l.park(); err != nil {
			l.closeFiles()
			return nil, err
		}
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(bell)}
	if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, bell, &ev); err != nil {
		l.closeFiles()
		return nil, err
	}
	return l, nil
}

// park makes the runtime poll the epoll instance.
func (l *loop) park() (err error) {
	if err := unix.SetNonblock(l.epoll, true); err != nil { // otherwise the runtime takes it for a disk file
		return err
	}
	l.file = os.NewFile(uintptr(l.epoll), "epoll")
	l.look = l.poll
	l.parks, err = l.file.SyscallConn()
	return err
}

func (l *loop) closeFiles() {
	if l.file != nil {
		_ = l.file.Close()
	} else {
		_ = unix.Close(l.epoll)
	}
	_ = unix.Close(l.bell)
	if l.uring != nil {
		l.uring.close()
	}
}

// tell queues news about a connection and wakes the owner if it sleeps. Any goroutine may call it.
func (l *loop) tell(c *loopConn, n news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	c.news |= n
	if !c.queued {
		c.queued = true
		l.queue = append(l.queue, c)
	}
	l.ring()
}

// ring wakes the owner. The caller holds mu.
func (l *loop) ring() {
	if !l.asleep {
		return
	}
	l.asleep = false
	one := uint64(1)
	// The write fails only if the counter is full, and then the eventfd is readable anyway.
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(l.bell), uintptr(unsafe.Pointer(&one)), 8)
}

// finishUp makes the loop end when its last connection is gone.
func (l *loop) finishUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	l.ring()
}

// run serves the loop's connections until the loop ends or has another owner. The argument me is the number of the
// goroutine that calls run (loop.owner).
func (l *loop) run(me int) {
	for {
		n := l.wait()
		if n < 0 {
			return
		}
		l.now = l.srv.cfg.Clock()
		for i := range l.events[:n] {
			l.event(&l.events[i])
		}
		l.hear()
		l.ready, l.others = l.others[:0], l.ready
		for i, c := range l.others {
			l.others[i] = nil
			l.turn(c)
		}
		l.serveShares()
		for l.submitted {
			l.submitted = false
			if !l.flushBackend(me) {
				return
			}
			l.now = l.srv.cfg.Clock()
			l.hear()
		}
		l.sendAnswered()
		l.sharesServed()
		if l.yields {
			l.yields = false
			runtime.Gosched() // goroutines that work for light clients come first
		}
	}
}

// flushBackend makes the backend run the submitted commands. It returns false if that took so long that
// another goroutine owns the loop now.
func (l *loop) flushBackend(me int) bool {
	l.held.Add(1)
	if !l.watching.Load() {
		l.watching.Store(true)
		l.stir <- struct{}{}
	}
	l.srv.backend.FlushWatched()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != me {
		return false
	}
	l.held.Add(1)
	return true
}

// event handles an event of a socket.
func (l *loop) event(ev *unix.EpollEvent) {
	fd := int(ev.Fd)
	if fd >= len(l.conns) || l.conns[fd] == nil {
		return // the bell, or a connection that is gone
	}
	c := l.conns[fd]
	if ev.Events&unix.EPOLLOUT != 0 {
		c.writable()
	}
	if ev.Events&^unix.EPOLLOUT != 0 {
		c.readable = true
		if ev.Events&(unix.EPOLLRDHUP|unix.EPOLLHUP|unix.EPOLLERR) != 0 {
			if !c.hungUp && (c.state != connIdle || c.s.needsAuth()) {
				l.srv.hungUp(c.s)
			}
			c.hungUp = true
			switch c.state {
			case connBlocked:
				if ev.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 || c.s.parked.Load() || c.s.waitsForLock() {
					l.retire(c)
				} else {
					// The client sends no more, but may still read. If its command is served before unblock ends it, the
					// client gets the reply.
					c.s.unblock()
				}
				return
			case connAway:
				c.s.left.Store(true)
			}
		}
		if c.state == connIdle {
			l.again(c)
		}
	}
}

// hear handles the queued news.
func (l *loop) hear() {
	l.mu.Lock()
	queue := l.queue
	l.queue, l.spare = l.spare[:0], queue
	for _, c := range queue {
		c.heard = c.news
		c.news, c.queued = 0, false
	}
	l.mu.Unlock()
	l.sendPushed(queue)
	for i, c := range queue {
		queue[i] = nil
		n := c.heard
		if n&newsJoined != 0 {
			l.join(c)
		}
		switch {
		case n&newsAnswered != 0:
			l.resume(c)
		case n&newsReturned != 0:
			l.returned(c)
		case c.state == connBlocked:
			l.hearBlocked(c, n)
		case n&newsClosed != 0 && c.state == connIdle:
			l.retire(c)
		}
	}
}

// join adds a new connection to the loop.
func (l *loop) join(c *loopConn) {
	for c.fd >= len(l.conns) {
		l.conns = append(l.conns, make([]*loopConn, len(l.conns)+64)...)
	}
	l.conns[c.fd] = c
	l.count++
	c.state = connIdle
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(c.fd)}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, c.fd, &ev); err != nil {
		l.srv.seldom.wait.note(l.srv.cfg.Clock(), "error", err)
		l.retire(c)
		return
	}
	if c.shut.Load() || c.tls != nil {
		l.again(c) // the connection was closed before it joined, or crypto/tls may hold input already
	}
}

// wait waits until the owner has something to do, and returns the number of events. It returns -1 if the loop has ended.
func (l *loop) wait() int {
	if l.poll(uintptr(l.epoll)) {
		return l.happened
	}
	l.mu.Lock()
	switch {
	case len(l.queue) > 0 || len(l.ready) > 0 || len(l.answered) > 0:
		l.mu.Unlock()
		return 0
	case l.over && l.count == 0:
		l.ended = true
		l.strangers.stop()
		l.slow.stop()
		l.incoming.stop()
		l.closeFiles()
		close(l.stop)
		l.mu.Unlock()
		return -1
	}
	if !l.strangers.wakes() || !l.slow.wakes() || !l.incoming.wakes() {
		l.mu.Unlock()
		return 0
	}
	l.asleep = true
	l.mu.Unlock()
	l.sleep()
	l.mu.Lock()
	l.asleep = false
	l.mu.Unlock()
	return l.happened
}

// poll fetches the events that have happened, without waiting, and reports whether there are any.
func (l *loop) poll(epoll uintptr) bool {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, epoll, uintptr(unsafe.Pointer(&l.events[0])), uintptr(len(l.events)), 0, 0, 0)
	if l.happened = int(n); errno != 0 {
		l.happened = 0
	}
	return l.happened > 0
}

// sleep waits for events and fetches them. It may return without an event.
func (l *loop) sleep() {
	if l.parks != nil && l.parks.Read(l.look) == nil {
		return
	}
	// EpollWait, unlike the raw system call in poll, goes through the scheduler, because it may wait long.
	l.happened, _ = unix.EpollWait(l.epoll, l.events[:], -1)
	l.happened = max(l.happened, 0) // EpollWait returns -1 if a signal interrupts it
}
