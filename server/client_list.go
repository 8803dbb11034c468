package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

func sortSessions(list []*session) {
	slices.SortFunc(list, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
}

func doClientInfo(s *session, args [][]byte) store.Reply {
	return store.Text(s.describe(s.srv.cfg.Clock(), querySize(args)))
}

// querySize returns the length of a command on the wire.
func querySize(args [][]byte) int {
	n := len(appendInt(nil, '*', int64(len(args))))
	for _, arg := range args {
		n += len(appendInt(nil, '$', int64(len(arg)))) + len(arg) + 2
	}
	return n
}

func doClientList(s *session, args [][]byte) store.Reply {
	f := clientFilter{}
	if len(args) > 2 {
		refusal := f.forList(args[2:])
		if refusal != "" {
			return store.Err(refusal)
		}
	}
	now := s.srv.cfg.Clock()
	var b strings.Builder
	room := s.build()
	for _, other := range s.srv.each() {
		if f.matches(other) {
			query := 0
			if other == s {
				query = querySize(args)
			}
			line := other.describe(now, query)
			if !room.takes(int64(len(line))) {
				return room.reply(store.Verbatim)
			}
			b.WriteString(line)
		}
	}
	return store.Text(b.String())
}

// forList reads the options of CLIENT LIST: TYPE or ID, not both.
func (f *clientFilter) forList(opts [][]byte) store.Error {
	switch option := strings.ToLower(string(opts[0])); {
	case option == "type" && len(opts) == 2:
		class, ok := clientClass(opts[1])
		if !ok {
			return errClientType(opts[1])
		}
		f.class = class
	case option == "id" && len(opts) > 1:
		f.ids = []int64{}
		for _, arg := range opts[1:] {
			id, ok := redistext.ParseInt(arg)
			if !ok {
				return errListID
			}
			f.ids = append(f.ids, id)
		}
		slices.Sort(f.ids)
	default:
		return store.ErrSyntax
	}
	return ""
}

// describe returns the session's line in CLIENT LIST. query is the length of the session's own CLIENT command, or 0. Of the buffers,
// only the pending output is measured.
func (s *session) describe(now time.Time, query int) string {
	return s.describeWith(now, query, func(name string) string { return name })
}

// describeWith does what describe does, but passes the names in the line through the function cut.
func (s *session) describeWith(now time.Time, query int, cut func(name string) string) string {
	n := s.srv.hub.counts(s)
	multi := s.queued.Load()
	how := s.tracking.Load()
	flags := ""
	for _, f := range []struct {
		set  bool
		flag string
	}{{s.monitoring.Load(), "O"}, {s.subscriber(), "P"}, {multi >= 0, "x"}, {s.waits(), "b"}, {how != nil, how.letters()}, {s.unix, "U"}, {s.noEvict.Load(), "e"}, {s.noTouch.Load(), "T"}} {
		if f.set {
			flags += f.flag
		}
	}
	flags = cmp.Or(flags, "N")
	last := "NULL"
	if cmd := s.command.Load(); cmd != nil {
		last = cmd.FullName()
	}
	pending := s.out.size()
	s.mu.Lock()
	name, libName, libVer := s.name, s.libName, s.libVer // Sprintf runs without mu, because the client's own commands need mu
	s.mu.Unlock()
	return fmt.Sprintf("id=%d addr=%s laddr=%s fd=%d name=%s age=%d idle=%d flags=%s db=%d sub=%d psub=%d ssub=%d multi=%d"+
		" qbuf=%d qbuf-free=%d argv-mem=0 multi-mem=0 rbs=%d rbp=%d obl=0 oll=%d omem=%d tot-mem=%d events=r cmd=%s user=%s redir=%d resp=%d"+
		" lib-name=%s lib-ver=%s\n",
		s.id, s.addr, s.laddr, s.id+7, cut(name), seconds(now.Sub(s.created)), seconds(now.Sub(time.UnixMilli(s.active.Load()))),
		flags, s.db.Load(), n[subChannel], n[subPattern], n[subShard], multi,
		query, inputBuffer-min(query, inputBuffer), inputBuffer, inputBuffer, min(pending, 1), pending, inputBuffer+pending, last, cut(s.userName()), how.redirection(), s.protocol(),
		cut(libName), cut(libVer))
}

func seconds(d time.Duration) int64 { return max(0, int64(d/time.Second)) }
