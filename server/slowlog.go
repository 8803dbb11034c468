package server

import (
	"bytes"
	"math"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// The slow log of a node has the commands of its own clients. Unlike Redis, it measures the time until the outcome is safe in the Raft
// log, because the client waits for that. Commands submitted together share their time equally.

// maxSlowBytes bounds the size of all entries, whatever slowlog-max-len says: the default number of
// entries of the largest size takes a quarter of it.
const maxSlowBytes = 4 << 20

// slowEntry is one slow command.
type slowEntry struct {
	id   int64
	at   int64 // when the command ended, in Unix seconds
	took time.Duration
	args []string
	addr string
	name string
}

// size returns the memory that an entry takes.
func (e *slowEntry) size() int {
	n := int(unsafe.Sizeof(*e)) + len(e.addr) + len(e.name)
	for _, arg := range e.args {
		n += int(unsafe.Sizeof(arg)) + len(arg)
	}
	return n
}

// slowlog keeps the latest slow commands, the oldest first.
type slowlog struct {
	mu      sync.Mutex
	entries []slowEntry
	size    int // the bytes of all entries
	next    int64
}

// add records a command. It removes the oldest entries while the slow log has more than limit entries, or more than maxSlowBytes bytes.
func (l *slowlog) add(e slowEntry, limit int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.id = l.next
	l.next++
	l.entries = append(l.entries, e)
	l.size += e.size()
	for len(l.entries) > 0 && (int64(len(l.entries)) > limit || l.size > maxSlowBytes) {
		l.size -= l.entries[0].size()
		l.entries[0] = slowEntry{}
		l.entries = l.entries[1:]
	}
}

// latest returns up to n entries, the newest first.
func (l *slowlog) latest(n int64) []slowEntry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []slowEntry
	for i := len(l.entries) - 1; i >= 0 && int64(len(list)) < n; i-- {
		list = append(list, l.entries[i])
	}
	return list
}

func (l *slowlog) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

func (l *slowlog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.size = nil, 0
}

// redactedWord replaces a secret argument.
const redactedWord = "(redacted)"

// redact returns args with redactedWord in place of secrets, and does not change args itself.
func redact(cmd *store.Command, args [][]byte) [][]byte {
	var hide []int
	from := func(i int) {
		for ; i < len(args); i++ {
			hide = append(hide, i)
		}
	}
	switch cmd.FullName() {
	case "auth":
		from(1)
	case "hello":
		hide = secretsOfHello(args)
	case "migrate":
		hide = secretsAfterAuth(args)
	case "acl|setuser", "acl|deluser", "acl|getuser":
		from(2)
	case "config|set":
		for i := 2; i+1 < len(args); i += 2 {
			if secretParams[strings.ToLower(string(args[i]))] {
				hide = append(hide, i+1)
			}
		}
	}
	if hide == nil {
		return args
	}
	shown := append([][]byte(nil), args...)
	for _, i := range hide {
		shown[i] = []byte(redactedWord)
	}
	return shown
}

// secretsOfHello returns the indexes of user names and passwords in HELLO, and of everything behind a wrong option.
func secretsOfHello(args [][]byte) (hide []int) {
	for i := 2; i < len(args); {
		switch opt := args[i]; { // EqualFold reads no more of a long argument than it has to
		case bytes.EqualFold(opt, []byte("auth")) && i+2 < len(args):
			hide = append(hide, i+1, i+2)
			i += 3
		case bytes.EqualFold(opt, []byte("setname")) && i+1 < len(args):
			i += 2
		default:
			for i++; i < len(args); i++ {
				hide = append(hide, i)
			}
		}
	}
	return hide
}

// secretsAfterAuth returns the indexes of the user names and passwords in the arguments of MIGRATE: they
// stand after the options AUTH and AUTH2.
func secretsAfterAuth(args [][]byte) (hide []int) {
	for i := 1; i < len(args); i++ {
		n := 0
		switch arg := args[i]; { // EqualFold reads no more of a long argument than it has to
		case bytes.EqualFold(arg, []byte("auth2")):
			n = 2
		case bytes.EqualFold(arg, []byte("auth")):
			n = 1
		}
		for ; n > 0 && i+1 < len(args); n-- {
			i++
			hide = append(hide, i)
		}
	}
	return hide
}

// secretParams are the parameters whose values are secret, as in Redis.
var secretParams = map[string]bool{
	"requirepass": true, "masterauth": true, "masteruser": true,
	"tls-key-file-pass": true, "tls-client-key-file-pass": true,
}

// ran counts a command that was run, and calls note if it may have been slow (setAlarm).
func (s *session) ran(cmd *store.Command, args [][]byte, took time.Duration) {
	s.srv.stats.called(cmd, took)
	if int64(took) >= s.srv.params.alarm.Load() {
		s.srv.note(s, cmd, args, took)
	}
}

// note records a slow command. It ignores blocking commands, because the client chose how long to wait.
func (srv *Server) note(s *session, cmd *store.Command, args [][]byte, took time.Duration) {
	if cmd.Is(store.Blocking) {
		return
	}
	p, now := srv.params, srv.cfg.Clock().Unix()
	if limit := p.slowerThan.Load(); limit >= 0 && took.Microseconds() >= limit && !cmd.Is(store.SkipSlowlog) {
		srv.slow.add(slowEntry{
			at: now, took: took, args: redistext.Shown(redact(cmd, args)), addr: s.addr, name: clip(s.clientName()),
		}, p.slowMax.Load())
	}
	if limit := p.spikeFrom.Load(); limit > 0 && took.Milliseconds() >= limit {
		event := "command"
		if cmd.Is(store.Fast) {
			event = "fast-command"
		}
		srv.spikes.add(event, now, took.Milliseconds())
	}
}

func (s *session) clientName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.name
}

// setAlarm sets p.alarm, the smallest duration that counts as slow, so that fast commands cost one atomic load.
func (p *params) setAlarm() {
	alarm := int64(math.MaxInt64)
	if us := p.slowerThan.Load(); us >= 0 {
		alarm = min(us, math.MaxInt64/1000) * 1000
	}
	if ms := p.spikeFrom.Load(); ms > 0 {
		alarm = min(alarm, int64(milliseconds(ms)))
	}
	p.alarm.Store(alarm)
}

func doSlowlogGet(s *session, args [][]byte) store.Reply {
	n := int64(10)
	switch {
	case len(args) > 3:
		return store.Err(errSubcommandArgs("slowlog", args[1]))
	case len(args) == 3:
		var ok bool
		if n, ok = redistext.ParseInt(args[2]); !ok || n < -1 {
			return store.Err(errSlowlogCount)
		}
		if n == -1 {
			n = math.MaxInt64
		}
	}
	b := s.build()
	for _, e := range s.srv.slow.latest(n) {
		if !b.add(store.List(store.Int(e.id), store.Int(e.at), store.Int(e.took.Microseconds()),
			store.Strs(e.args...), store.Str(e.addr), store.Str(e.name))) {
			break
		}
	}
	return b.reply(store.Array)
}

func doSlowlogLen(s *session, _ [][]byte) store.Reply { return store.Int(int64(s.srv.slow.len())) }

func doSlowlogReset(s *session, _ [][]byte) store.Reply {
	s.srv.slow.reset()
	return store.OK
}
