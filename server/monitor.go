package server

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// monitors are the clients of MONITOR. They see the commands of this node's clients, and at the leader those that scripts call, except
// commands for operators.
type monitors struct {
	count atomic.Int32 // len(sessions.m), readable without mu: every command reads it

	mu       sync.Mutex
	sessions roomy[*session, struct{}]
}

// add makes a session a monitor, and queues the reply to MONITOR under the same lock, so that no command can appear
// before the reply.
func (m *monitors) add(s *session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions.put(s, struct{}{})
	m.count.Store(int32(len(m.sessions.m)))
	s.monitoring.Store(true)
	s.reply(nil, store.OK)
}

func (m *monitors) remove(s *session) {
	if !s.monitoring.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions.drop(s)
	m.count.Store(int32(len(m.sessions.m)))
	s.monitoring.Store(false)
}

// display shows a command of a session to the monitors, unless it is a command for operators.
func (s *session) display(cmd *store.Command, args [][]byte) {
	if s.srv.monitors.count.Load() == 0 || cmd.Is(store.Admin) {
		return
	}
	s.srv.show(int(s.db.Load()), s.addr, redact(cmd, args))
}

// If a script calls a command, Watch shows the command to the monitors, unless it is a command for operators.
func (srv *Server) Watch(c *store.Ctx) {
	if srv.monitors.count.Load() == 0 || c.Cmd.Is(store.Admin) {
		return
	}
	srv.show(c.DB, "lua", redact(c.Cmd, c.Args))
}

func (srv *Server) show(db int, from string, args [][]byte) {
	now := srv.cfg.Clock()
	line := appendMonitorLine(nil, now, db, from, args)
	srv.monitors.mu.Lock()
	defer srv.monitors.mu.Unlock()
	for s := range srv.monitors.sessions.m {
		s.out.push(message{frame: line}, srv.params.limitOf(s.class()), now)
	}
}

// A line for the monitors delays the next command, so it has at most monitorBytes of arguments (monitorArgBytes of one). Each argument
// counts monitorArgument bytes more.
const (
	monitorBytes    = 256 << 10
	monitorArgBytes = 64 << 10
	monitorArgument = 4
)

// appendMonitorLine appends the line that MONITOR prints for a command. Like SLOWLOG, the line says how much it leaves out.
func appendMonitorLine(b []byte, now time.Time, db int, from string, args [][]byte) []byte {
	us := now.UnixMicro()
	b = fmt.Appendf(b, "+%d.%06d [%d %s]", us/1e6, us%1e6, db, from)
	room := monitorBytes
	for i, arg := range args {
		if room < monitorArgument {
			b = fmt.Appendf(b, ` "... (%d more arguments)"`, len(args)-i)
			break
		}
		room -= monitorArgument
		shown := min(len(arg), room, monitorArgBytes)
		room -= shown
		b = appendEscaped(append(b, ' ', '"'), arg[:shown])
		if more := len(arg) - shown; more > 0 {
			b = fmt.Appendf(b, "... (%d more bytes)", more)
		}
		b = append(b, '"')
	}
	return append(b, '\r', '\n')
}

// escapes has what MONITOR prints for each byte, as Redis's sdscatrepr does; "" for a byte that is printed as it is.
var escapes = func() (list [256]string) {
	for c := range list {
		if c < ' ' || c > '~' {
			list[c] = fmt.Sprintf(`\x%02x`, c)
		}
	}
	for c, letter := range map[byte]string{'\n': "n", '\r': "r", '\t': "t", '\a': "a", '\b': "b", '\\': `\`, '"': `"`} {
		list[c] = `\` + letter
	}
	return list
}()

func appendEscaped(b, arg []byte) []byte {
	size := 0
	for _, c := range arg {
		size += max(1, len(escapes[c]))
	}
	b = slices.Grow(b, size+1)
	from := 0 // arg[:from] has been appended
	for i, c := range arg {
		if escape := escapes[c]; escape != "" {
			b = append(append(b, arg[from:i]...), escape...)
			from = i + 1
		}
	}
	return append(b, arg[from:]...)
}

// doMonitor does not reply to a client that is a monitor already; neither does Redis.
func doMonitor(s *session, _ [][]byte) store.Reply {
	if s.executing != nil {
		return store.Err(errMonitorInExec)
	}
	if !s.monitoring.Load() {
		s.srv.monitors.add(s)
	}
	return store.Reply{Kind: store.None}
}

// touchesKeys reports whether a command is forbidden to monitors: Redis treats a monitor as a kind of replica, which may not
// use keys.
func touchesKeys(cmd *store.Command) bool {
	return cmd.Flags&(store.Write|store.ReadOnly|store.MayReplicate) != 0 || cmd.Is(store.Scripting) && cmd.FullName() != "script"
}
