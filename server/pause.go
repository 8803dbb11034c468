package server

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// pauseMode is the kind of commands that CLIENT PAUSE holds back.
type pauseMode = int32

const (
	pauseOff pauseMode = iota
	pauseWrite
	pauseAll
)

// pause implements CLIENT PAUSE. As in Redis, commands of this node's clients wait here, but not what has reached the leader.
type pause struct {
	clock   func() time.Time
	backend Backend         // to look up scripts and functions
	stop    <-chan struct{} // closed at shutdown

	mode atomic.Int32 // the present pauseMode; read for every command

	mu      sync.Mutex
	until   int64 // the end of the pause, Unix ms
	waiting map[*session]parked
	order   int
	timed   bool // the goroutine watch runs
}

// parked is a session that waits for the end of the pause.
type parked struct {
	order  int // sessions continue in the order in which they began to wait
	resume func()
}

func newPause(clock func() time.Time, backend Backend, stop <-chan struct{}) *pause {
	return &pause{clock: clock, backend: backend, stop: stop, waiting: map[*session]parked{}}
}

// holds reports whether a command has to wait for the end of the pause. For EXEC, see session.paused.
func (p *pause) holds(cmd *store.Command, args [][]byte) bool {
	switch p.mode.Load() {
	case pauseOff:
		return false
	case pauseAll:
		return true
	}
	return p.mayWrite(cmd, args)
}

// mayWrite reports whether CLIENT PAUSE WRITE holds a command back: a write, a PUBLISH or SPUBLISH, or a script or function that does
// not declare no-writes.
func (p *pause) mayWrite(cmd *store.Command, args [][]byte) bool {
	return cmd.Flags&(store.Write|store.MayReplicate) != 0 || p.scriptWrites(cmd, args)
}

// scriptWrites reports whether a command is an EVAL, EVALSHA or FCALL of a script or function that does not declare no-writes.
func (p *pause) scriptWrites(cmd *store.Command, args [][]byte) bool {
	switch cmd.Name {
	case "eval":
		return !declaresNoWrites(string(args[1][:min(len(args[1]), 256)]))
	case "evalsha":
		body, _ := p.backend.Script(strings.ToLower(string(args[1])))
		return !declaresNoWrites(body)
	case "fcall":
		flags, _ := p.backend.FunctionFlags(string(args[1]))
		return flags&store.FunctionNoWrites == 0
	}
	return false
}

// declaresNoWrites reports whether a script's first line declares no-writes.
func declaresNoWrites(body string) bool {
	first, _, _ := strings.Cut(body, "\n")
	return strings.HasPrefix(first, "#!") && strings.Contains(first, "no-writes")
}

// begin pauses for ms milliseconds. If there is a pause already, the two become one, with the stricter mode and the later end.
func (p *pause) begin(mode pauseMode, ms int64) {
	now := p.clock().UnixMilli()
	p.mu.Lock()
	defer p.mu.Unlock()
	end := now + ms // if the sum overflows, end is in the past
	if end <= now && p.mode.Load() == pauseOff {
		return
	}
	p.until = max(p.until, end)
	p.mode.Store(max(mode, p.mode.Load()))
	if !p.timed {
		p.timed = true
		go p.watch()
	}
}

// end ends the pause and lets all waiting sessions continue.
func (p *pause) end() {
	p.mu.Lock()
	waiting := p.release()
	p.mu.Unlock()
	resume(waiting)
}

// release ends the pause and returns the waiting sessions. The caller holds p.mu.
func (p *pause) release() map[*session]parked {
	p.mode.Store(pauseOff)
	p.until = 0
	waiting := p.waiting
	p.waiting = map[*session]parked{}
	return waiting
}

func resume(waiting map[*session]parked) {
	for _, w := range slices.SortedFunc(maps.Values(waiting), func(a, b parked) int { return cmp.Compare(a.order, b.order) }) {
		w.resume()
	}
}

// await makes the end of the pause call the function resume. It returns false, and never calls the function, if there is no pause.
func (p *pause) await(s *session, resume func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mode.Load() == pauseOff {
		return false
	}
	p.order++
	p.waiting[s] = parked{p.order, resume}
	return true
}

// forget cancels the session's await.
func (p *pause) forget(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.waiting, s)
}

func (p *pause) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

// The goroutine watch looks at the clock at least every pausePoll, because somebody may set the clock forward.
const pausePoll = 20 * time.Millisecond

// watch ends the pause when its time is over.
func (p *pause) watch() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-p.stop:
			return // the server stops, and closes the sessions that wait
		case <-timer.C:
		}
		p.mu.Lock()
		left := p.until - p.clock().UnixMilli()
		if left <= 0 {
			p.timed = false
			waiting := p.release() // before Unlock, after which the next pause may begin
			p.mu.Unlock()
			resume(waiting)
			return
		}
		p.mu.Unlock()
		timer.Reset(min(time.Duration(min(left, 1000))*time.Millisecond, pausePoll))
	}
}

func doClientPause(s *session, args [][]byte) store.Reply {
	mode := pauseAll
	switch {
	case len(args) > 4:
		return store.Err(errSubcommandArgs("client", args[1]))
	case len(args) == 4 && strings.EqualFold(string(args[3]), "write"):
		mode = pauseWrite
	case len(args) == 4 && !strings.EqualFold(string(args[3]), "all"):
		return store.Err(errPauseMode)
	}
	ms, ok := redistext.ParseInt(args[2])
	if !ok {
		return store.Err(errTimeout)
	}
	if ms < 0 {
		return store.Err(errTimeoutSign)
	}
	if s.srv.cfg.AnyClient {
		return store.Err(errStrangerPause)
	}
	s.srv.pause.begin(mode, ms)
	return store.OK
}

func doClientUnpause(s *session, _ [][]byte) store.Reply {
	s.srv.pause.end()
	return store.OK
}

// doClientUnblock unblocks a client of this node, but not one that CLIENT PAUSE holds back: Redis replies to such a client twice.
func doClientUnblock(s *session, args [][]byte) store.Reply {
	reply, refusal := store.WaitTimedOut, store.Error("")
	switch {
	case len(args) > 4:
		return store.Err(errSubcommandArgs("client", args[1]))
	case len(args) == 4 && strings.EqualFold(string(args[3]), "error"):
		reply, refusal = store.Err(errUnblocked), errUnblocked
	case len(args) == 4 && !strings.EqualFold(string(args[3]), "timeout"):
		return store.Err(errUnblockReason)
	}
	id, ok := redistext.ParseInt(args[2])
	if !ok {
		return store.Err(store.ErrNotInteger)
	}
	s.srv.mu.Lock()
	other := s.srv.sessions[id]
	s.srv.mu.Unlock()
	if other == nil {
		return store.Zero
	}
	if other.unblockWait(refusal) {
		return store.Int(1)
	}
	b := other.blocked.Load()
	if b == nil {
		return store.Zero
	}
	// The leader may serve the blocked command at this moment. So only the leader knows whether Unblock came in time.
	defer s.idle()()
	ended := make(chan bool, 1)
	s.srv.backend.Unblock(b, reply, func(ok bool) { ended <- ok })
	select {
	case ok = <-ended:
	case <-s.srv.stop:
		ok = false
	}
	if !ok {
		return store.Zero
	}
	return store.Int(1)
}
