package server

import (
	"bytes"
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// The history of locks: LOCK.HISTORY, LOCK.STATS, and messages about the events.

// historySize is how many bytes of events a node keeps: some ten thousand.
const historySize = 8 << 20

// lockEvents begins the names of the channels for events of locks. A pattern that begins otherwise gets no such messages, unless a command
// has published them: a client that asks for all messages gets those of Redis.
const lockEvents = store.LockChannels

// lockAudit are the values of the parameter lock-audit.
var lockAudit = []string{"no", "yes", "all"}

// lockNames counts the channels for events of locks that have subscribers, by event, and at index 0 the patterns.
type lockNames [store.LockGap + 1]atomic.Int64

// add counts a channel or a pattern. It leaves out a channel that no event has.
func (n *lockNames) add(kind subKind, name string, by int64) {
	if kind == subPattern {
		n[0].Add(by)
	} else if _, event, is := strings.Cut(name, "__:"); is {
		if how, known := store.LockHowOf(event); known {
			n[how].Add(by)
		}
	}
}

// watchLocks notes a new subscription. The caller holds mu.
func (h *Hub) watchLocks(kind subKind, name string, subs *subscribers) {
	if kind == subShard || !strings.HasPrefix(name, lockEvents) {
		return
	}
	h.lockNames.add(kind, name, 1)
	if kind == subPattern {
		h.watchers.put(name, subs)
	}
}

// leaveLocks notes the end of a subscription. The caller holds mu.
func (h *Hub) leaveLocks(kind subKind, name string) {
	if kind == subShard || !strings.HasPrefix(name, lockEvents) {
		return
	}
	h.lockNames.add(kind, name, -1)
	if kind == subPattern {
		h.watchers.drop(name)
	}
}

// Wanted, Locked, Retold and Lost implement store.LockSink.
func (h *Hub) Wanted() bool { return h.locks.Wanted() }

func (h *Hub) Locked(seq uint64, at store.Time, events []store.LockEvent) {
	h.locks.Locked(seq, at, events)
}

func (h *Hub) Retold(seq uint64, at store.Time, events []store.LockEvent) {
	h.locks.Retold(seq, at, events)
}

func (h *Hub) Lost(seq uint64, at store.Time) { h.locks.Lost(seq, at) }

// Locks returns the history of locks.
func (h *Hub) Locks() *history.History { return h.locks }

// tellOfLock publishes an event to the subscribers of this node. LOCK.FORCE and LOCK.REVOKE publish theirs themselves.
func (h *Hub) tellOfLock(e history.Event) {
	if h.lockNames[0].Load()+h.lockNames[e.How].Load() == 0 || e.Kind == "" || e.How == store.LockForced || e.How == store.LockRevoked {
		return
	}
	channel := lockEvents + strconv.Itoa(e.DB) + "__:" + e.How.String()
	h.mu.RLock()
	defer h.mu.RUnlock()
	subs := h.subscribersOf(subChannel, channel)
	if len(subs) == 0 && h.watchers.len() == 0 {
		return // who listens to other events must not cost a message for each grant
	}
	message := string(e.AppendJSON(nil))
	var d delivery
	defer h.delivered(&d)
	d.deliver(subChannel, subs, channel, message)
	h.matches(&h.watchers, channel, func(pattern string, subs map[*session]struct{}) {
		d.deliver(subPattern, subs, pattern, channel, message)
	})
}

// historyRows are the commands about the history of locks. A node answers them from what it has seen itself.
func historyRows() []row {
	const flags = store.ReadOnly | store.Admin | store.Dangerous | store.Loading | store.Stale
	tips := []string{"request_policy:all_nodes", "nondeterministic_output"}
	return []row{
		{Command: store.Command{
			Name: "lock.history", Arity: -2, Flags: flags, Group: "lock", Since: "0.2.0", Newer: true, Tips: tips,
			Summary: "Tells what has happened to a lock, or to all locks of the database, as this node has seen it.",
			Usage:   "<key | *> [FROM number] [SINCE milliseconds] [COUNT count] [EVENT event]",
		}, do: doLockHistory},
		{Command: store.Command{
			Name: "lock.stats", Arity: -1, Flags: flags, Group: "lock", Since: "0.2.0", Newer: true, Tips: tips,
			Summary: "Counts what has happened to locks since this node has started.",
			Usage:   "[TOP count]",
		}, do: doLockStats},
	}
}

// historyQuery are the arguments of LOCK.HISTORY.
type historyQuery struct {
	db     int
	key    string
	all    bool // not only those of the key
	from   int64
	since  int64
	count  int64
	latest bool // the last events, not the first ones
	how    store.LockHow
}

// historyCount is how many events LOCK.HISTORY replies without COUNT.
const historyCount = 100

// parse parses the arguments after the name of the command.
func (q *historyQuery) parse(args [][]byte) (fault store.Error) {
	q.key = store.ShortName(string(args[0]))
	q.all = q.key == "*"
	q.count, q.latest = historyCount, true
	for args = args[1:]; len(args) > 0; args = args[2:] {
		if len(args) < 2 {
			return store.ErrSyntax
		}
		number := func(to *int64) bool {
			n, ok := redistext.ParseInt(args[1])
			*to = n
			return ok && n >= 0
		}
		ok := true
		switch word := args[0]; {
		case bytes.EqualFold(word, []byte("from")):
			ok, q.latest = number(&q.from), false
		case bytes.EqualFold(word, []byte("since")):
			ok, q.latest = number(&q.since), false
		case bytes.EqualFold(word, []byte("count")):
			ok = number(&q.count) && q.count > 0 && q.count <= math.MaxInt32
		case bytes.EqualFold(word, []byte("event")):
			if q.how, ok = store.LockHowOf(string(args[1])); !ok {
				return errLockEvent
			}
		default:
			return store.ErrSyntax
		}
		if !ok {
			return store.ErrNotInteger
		}
	}
	return ""
}

// wants reports whether an event is one of those that the query asks for. Gaps are, because they say what the reply cannot tell.
func (q *historyQuery) wants(e *history.Event) bool {
	switch {
	case int64(e.Seq) < q.from || e.At < q.since:
		return false
	case e.How == store.LockGap:
		return true
	case q.how != 0 && q.how != e.How:
		return false
	case e.How == store.LockSwapped && (int64(q.db) == e.Holds || q.db == e.DB), e.How == store.LockFlushed && q.db == e.DB:
		return true
	}
	return e.DB == q.db && (q.all || q.key == e.Key)
}

// doLockHistory replies only events of locks for which the user may run LOCK.INFO.
func doLockHistory(s *session, args [][]byte) store.Reply {
	q := historyQuery{db: s.database()}
	if fault := q.parse(args[1:]); fault != "" {
		return store.Err(fault)
	}
	wants := func(e *history.Event) bool {
		s.works()
		return q.wants(e) && (e.Kind == "" || s.mayKnow(e.Key))
	}
	key := q.key
	if q.all {
		key = ""
	}
	view, skip := s.srv.hub.locks.View().From(uint64(q.from)), int64(0)
	if q.latest {
		view, skip = view.Latest(q.count, key, wants)
		skip = max(skip-q.count, 0)
	}
	b, n := s.build(), int64(0)
	view.Each(key, func(e *history.Event) bool {
		if !wants(e) {
			return true
		}
		if n++; n <= skip {
			return true
		}
		s.srv.hub.locks.Name(e)
		return b.add(eventReply(e)) && n-skip < q.count
	})
	return b.reply(store.Array)
}

// works counts the work on an event, for which all clients wait if a script has called the command.
func (s *session) works() {
	if s.script != nil {
		s.script.Work(1)
	}
}

// mayKnow reports whether the user may run LOCK.INFO for a key.
func (s *session) mayKnow(key string) bool {
	name := []byte("lock.info")
	info, args := s.srv.table.Lookup(name), [][]byte{name, []byte(key)}
	if s.script != nil {
		return s.script.MayRun(info, args...)
	}
	return s.mayRun(info, args) == ""
}

// database returns the number of the database in which the present command runs.
func (s *session) database() int {
	if s.script != nil {
		return s.script.DB
	}
	return int(s.db.Load())
}

// eventReply is an event as LOCK.HISTORY shows it. The lease of an owner that has lost the lock has no time left.
func eventReply(e *history.Event) store.Reply {
	ttl := int64(-1)
	switch {
	case e.How.Ends() && e.Holds == 0:
		ttl = 0
	case e.Deadline != 0:
		ttl = max(e.Deadline-e.Lease, 0)
	}
	return store.MapOf(store.Str("seq"), store.Int(int64(e.Seq)), store.Str("at"), store.Int(e.At), store.Str("event"), store.Str(e.How.String()),
		store.Str("key"), copied(e.Key), store.Str("kind"), copied(e.Kind), store.Str("owner"), copied(e.Owner), store.Str("token"), store.Int(int64(e.Token)),
		store.Str("holds"), store.Int(e.Holds), store.Str("ttl"), store.Int(ttl), store.Str("node"), store.Str(e.Node), store.Str("client"), store.Int(int64(e.ClientID)), store.Str("user"), copied(e.User), store.Str("reason"), copied(e.Reason))
}

// copied copies a name, because the reply would keep a whole block of events in memory.
func copied(name string) store.Reply { return store.Str(strings.Clone(name)) }

// mostTop is the largest COUNT of LOCK.STATS TOP.
const mostTop = 1000

// doLockStats counts the events since the start, and finds the locks with the most grants among the events that are kept.
func doLockStats(s *session, args [][]byte) store.Reply {
	top := int64(10)
	switch {
	case len(args) == 1:
	case len(args) != 3 || !bytes.EqualFold(args[1], []byte("top")):
		return store.Err(store.ErrSyntax)
	default:
		var ok bool
		if top, ok = redistext.ParseInt(args[2]); !ok || top < 0 || top > mostTop {
			return store.Err(errTop)
		}
	}
	b := s.build()
	b.add(store.Str("kinds"), kindCounts(s.srv.hub.locks.Counts()), store.Str("top"), s.busiest(int(top)))
	return b.reply(store.Map)
}

func kindCounts(counts map[string]history.Counts) store.Reply {
	var list []store.Reply
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		if kind == "" {
			continue
		}
		var of []store.Reply
		for how := store.LockGranted; how < store.LockFlushed; how++ {
			of = append(of, store.Str(how.String()), store.Int(int64(counts[kind][how])))
		}
		list = append(list, store.Str(kind), store.MapOf(of...))
	}
	return store.MapOf(list...)
}

// usage is what the kept events say of one lock. Its names are parts of the history's memory.
type usage struct {
	key                      string
	granted, expired, forced int64
	ends, held, longest      int64 // holds that have ended; how long they took, all together and at most, in ms
	since                    []hold
}

// hold is a present hold of an owner.
type hold struct {
	owner string
	began int64
}

// mostHolders bounds usage.since: of a lock with more holders at a time, some holds are not counted.
const mostHolders = 64

func (u *usage) add(e *history.Event) {
	at := slices.IndexFunc(u.since, func(h hold) bool { return h.owner == e.Owner })
	switch {
	case e.How == store.LockGranted:
		u.granted++
		if at < 0 && len(u.since) < mostHolders {
			u.since = append(u.since, hold{e.Owner, e.At})
		}
	case e.How.Ends() && e.Holds == 0:
		u.expired += store.Flag(e.How == store.LockExpired).Int
		u.forced += store.Flag(e.How == store.LockForced).Int
		if at >= 0 {
			took := max(e.At-u.since[at].began, 0)
			u.ends, u.held, u.longest = u.ends+1, u.held+took, max(u.longest, took)
			u.since = slices.Delete(u.since, at, at+1)
		}
	}
}

// busiest returns the locks of the database with the most grants.
func (s *session) busiest(top int) store.Reply {
	rows, list := []store.Reply{}, []usage{}
	if top == 0 {
		return store.List(rows...)
	}
	db, places := s.database(), map[string]int{} // there may be a lock for each event, and few of them are shown
	s.srv.hub.locks.View().Each("", func(e *history.Event) bool {
		s.works()
		if e.DB != db || e.Kind == "" {
			return true
		}
		at, known := places[e.Key]
		if !known {
			at = len(list)
			places[e.Key] = at
			list = append(list, usage{key: e.Key})
		}
		list[at].add(e)
		return true
	})
	slices.SortFunc(list, func(a, b usage) int { return cmp.Or(cmp.Compare(b.granted, a.granted), cmp.Compare(a.key, b.key)) })
	for i := range list {
		if len(rows) == top {
			break
		}
		if u := &list[i]; s.mayKnow(u.key) {
			rows = append(rows, store.MapOf(store.Str("key"), copied(u.key), store.Str("granted"), store.Int(u.granted), store.Str("expired"), store.Int(u.expired),
				store.Str("forced"), store.Int(u.forced), store.Str("held-ms"), store.Int(u.held/max(u.ends, 1)), store.Str("longest-ms"), store.Int(u.longest)))
		}
	}
	return store.List(rows...)
}
