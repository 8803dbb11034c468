package server

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/lockstep-io/lockstep/store"
)

const (
	// aclLogGroup is the longest time between equal refusals that share an entry. aclLogScan is how many of the newest entries add
	// searches.
	aclLogGroup = time.Minute
	aclLogScan  = 10
	// aclLogShown is how many entries ACL LOG shows by default.
	aclLogShown = 10
	// maxACLLogBytes bounds the size of all entries together, whatever acllog-max-len says.
	maxACLLogBytes = 1 << 20
)

// aclLog holds the latest refusals on this node, the newest first.
type aclLog struct {
	mu      sync.Mutex
	entries []aclLogEntry
	size    int // bytes of entries
}

type aclLogEntry struct {
	count   int64
	reason  store.DenyReason
	context store.DenyContext
	object  string
	user    string
	client  string
	at      time.Time
}

// bytes returns the memory that an entry takes.
func (e *aclLogEntry) bytes() int {
	return int(unsafe.Sizeof(*e)) + len(e.object) + len(e.user) + len(e.client)
}

// add records a refusal, merged with an equal recent entry. The argument limit is the maximum number of entries.
func (l *aclLog) add(now time.Time, limit int, e aclLogEntry, s *session) {
	e.count, e.at = 1, now
	e.object, e.user = clip(e.object), clip(e.user)
	// A refusal costs the client little, so the server must not copy long names that the client chose.
	e.client = clip(strings.TrimSuffix(s.describeWith(now, 0, clip), "\n"))
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.entries[:min(aclLogScan, len(l.entries))], func(o aclLogEntry) bool {
		return o.reason == e.reason && o.context == e.context && o.object == e.object && o.user == e.user &&
			now.Sub(o.at).Abs() <= aclLogGroup
	})
	if at >= 0 {
		e.count += l.entries[at].count
		l.remove(at)
	}
	l.entries = slices.Insert(l.entries, 0, e)
	l.size += e.bytes()
	for len(l.entries) > 0 && (len(l.entries) > limit || l.size > maxACLLogBytes) {
		l.remove(len(l.entries) - 1)
	}
}

func (l *aclLog) remove(at int) {
	l.size -= l.entries[at].bytes()
	l.entries = slices.Delete(l.entries, at, at+1)
}

// aclLogWord is the maximum number of bytes of a name that the log keeps. It is needed because the client chooses the
// name and its length.
const aclLogWord = 1 << 10

// clip shortens a name of more than aclLogWord bytes, and notes how many bytes are missing.
func clip(name string) string {
	if more := len(name) - aclLogWord; more > 0 {
		return fmt.Sprintf("%s... (%d more bytes)", name[:aclLogWord], more)
	}
	return name
}

func (l *aclLog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries, l.size = nil, 0
}

// show returns the reply of ACL LOG with at most n entries.
func (l *aclLog) show(b *building, now time.Time, n int64) store.Reply {
	l.mu.Lock()
	entries := slices.Clone(l.entries[:min(n, int64(len(l.entries)))])
	l.mu.Unlock()
	for _, e := range entries {
		if !b.add(store.MapOf(
			store.Str("count"), store.Int(e.count),
			store.Str("reason"), store.Str(e.reason.String()),
			store.Str("context"), store.Str(e.context.String()),
			store.Str("object"), store.Str(e.object),
			store.Str("username"), store.Str(e.user),
			store.Str("age-seconds"), store.Float(float64(now.Sub(e.at).Milliseconds())/1000),
			store.Str("client-info"), store.Str(e.client),
		)) {
			break
		}
	}
	return b.reply(store.Array)
}
