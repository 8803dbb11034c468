package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/server/history"
	"github.com/lockstep-io/lockstep/store"
)

// Summary is what a check has seen.
type Summary struct {
	Events  int64     `json:"events"`
	Grants  int64     `json:"grants"`
	Locks   int       `json:"locks"`
	Gaps    int       `json:"gaps"`
	Faults  int64     `json:"faults"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Sources int       `json:"directories"`
}

// Check reads the events of one cluster, from a directory or a file for each node, and calls fault for each fault. Each lock must have had
// owners at a time only as its kind allows, with tokens that rise, and no lease may have ended early. Two nodes must tell the same events.
func Check(paths []string, fault func(text string)) (Summary, error) {
	c := &checker{fault: fault, dbs: map[int]*database{}}
	var sources []*source
	for _, path := range paths {
		s, err := open(path)
		if err != nil {
			return c.sum, err
		}
		defer s.close()
		sources = append(sources, s)
	}
	c.sum.Sources = len(sources)
	err := c.merge(sources)
	for _, d := range c.dbs {
		c.sum.Locks += len(d.locks)
	}
	return c.sum, err
}

// source is the events of one node.
type source struct {
	name  string
	files []file
	in    *os.File
	r     *reader

	ahead   *history.Event // the next event; nil at the end
	began   bool           // events have been read, and none are missing since
	hole    bool           // the next events follow a gap
	written uint64         // number of the last write set
	last    place          // of the events that take has returned last
	life    int            // how often the node has got an older state, as by lockstep restore: its numbers begin again
}

func open(path string) (*source, error) {
	s := &source{name: path}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		if s.files, err = list(path); err != nil {
			return nil, err
		}
		if len(s.files) == 0 {
			return nil, fmt.Errorf("%s: no files locks-*.jsonl: name the directory of --audit-dir", path)
		}
	default:
		s.files = []file{{path: path}}
	}
	return s, s.advance()
}

func (s *source) close() {
	if s.in != nil {
		_ = s.in.Close() // it was only read
	}
}

// advance reads the next event.
func (s *source) advance() error {
	for {
		if s.r == nil {
			if len(s.files) == 0 {
				s.ahead = nil
				return nil
			}
			s.close()
			var err error
			if s.in, err = os.Open(s.files[0].path); err != nil {
				return err
			}
			s.r, s.files = newReader(s.in, filepath.Join(s.name, filepath.Base(s.files[0].path))), s.files[1:]
		}
		e, err := s.r.next()
		switch {
		case err == io.EOF, err == errTorn && len(s.files) == 0: // a node is just writing, or has ended within a line
			s.r = nil
			continue
		case errors.Is(err, errTorn):
			return fmt.Errorf("%s:%d: %w", s.r.name, s.r.line, err)
		case err != nil:
			return err
		case e.Seq < s.written && e.How != store.LockGap:
			return fmt.Errorf("%s:%d: write set %d comes after %d", s.r.name, s.r.line, e.Seq, s.written)
		}
		if e.How == store.LockGap && e.Reason == anotherState {
			s.life++
		}
		s.written, s.ahead = e.Seq, &e
		return nil
	}
}

// place is the place of a write set in the life of a cluster. Nodes that were restored from one backup tell of one life more.
type place struct {
	life int
	seq  uint64
}

func (p place) before(other place) bool {
	return p.life < other.life || p.life == other.life && p.seq < other.seq
}

// place returns the place of the next event, which must exist.
func (s *source) place() place { return place{s.life, s.ahead.Seq} }

// take returns the events of a write set, without renewals, which a node may leave out.
func (s *source) take(at place) (events []history.Event, err error) {
	for s.ahead != nil && s.place() == at && s.ahead.How != store.LockGap {
		if s.ahead.How != store.LockRenewed {
			events = append(events, *s.ahead)
		}
		if err := s.advance(); err != nil {
			return nil, err
		}
	}
	s.began, s.last = true, at
	return events, nil
}

// checker follows the owners of all locks.
type checker struct {
	fault func(string)
	dbs   map[int]*database
	sum   Summary
}

// database is the locks of a database.
type database struct {
	locks   map[string]*lockState
	flushes int // how often all locks were deleted, or became unknown
	gaps    int // how often the owners have become unknown
}

// lockState is what the events say of a lock.
type lockState struct {
	owners  map[string]owning // as of so many flushes
	flushes int
	token   uint64 // the last one of a new owner
	gaps    int    // database.gaps at that time
}

type owning struct {
	kind    string
	permits int64
}

// merge goes through the events of all nodes in the order of the log.
func (c *checker) merge(sources []*source) error {
	for {
		at, gap, any := first(sources)
		if !any {
			return nil
		}
		if gap != nil {
			if err := c.gap(gap, sources); err != nil {
				return err
			}
			continue
		}
		var best []history.Event
		var from *source
		for _, s := range sources {
			if s.ahead == nil || s.place() != at {
				continue
			}
			hole := s.hole
			s.hole = false
			events, err := s.take(at)
			if err != nil {
				return err
			}
			if from != nil && !hole && !from.hole && !slices.EqualFunc(events, best, same) {
				c.report(at.seq, "%s and %s tell different events", from.name, s.name)
			}
			if len(events) >= len(best) {
				best, from = events, s
			}
		}
		if s := silent(sources, at); s != nil && len(best) > 0 {
			c.report(at.seq, "%s tells events, and %s tells none", from.name, s.name)
		}
		for i := range best {
			c.event(&best[i])
		}
	}
}

// same compares what two nodes say of an event. They agree on everything but the client's name: a node that has not heard of another one yet
// cannot tell it.
func same(a, b history.Event) bool {
	a.Node, a.ClientID, b.Node, b.ClientID = "", 0, "", 0
	return a == b
}

// silent returns a node that has nothing to tell of a write set, although it misses no events.
func silent(sources []*source, at place) *source {
	for _, s := range sources {
		if s.began && !s.hole && s.ahead != nil && s.ahead.How != store.LockGap && s.passed(at) && at.before(s.place()) {
			return s
		}
	}
	return nil
}

// passed reports whether the events before the next one are of the write set, or of an earlier one of the same life.
func (s *source) passed(at place) bool {
	return s.last.life == at.life && !at.before(s.last) && s.last != at
}

// first returns the place of the next write set, or the source whose next event is a gap before it.
func first(sources []*source) (at place, gap *source, any bool) {
	for _, s := range sources {
		switch {
		case s.ahead == nil:
			continue
		case any && at.before(s.place()), any && s.place() == at && s.ahead.How != store.LockGap:
			continue
		}
		at, any, gap = s.place(), true, nil
		if s.ahead.How == store.LockGap {
			gap = s
		}
	}
	return at, gap, any
}

// gap handles missing events of a node. If no other node has them, the owners are unknown from then on.
func (c *checker) gap(of *source, sources []*source) error {
	of.began, of.hole = false, true
	of.written = 0
	if err := of.advance(); err != nil {
		return err
	}
	if slices.ContainsFunc(sources, func(s *source) bool {
		return s != of && s.life == of.life && s.began && s.ahead != nil && s.ahead.How != store.LockGap
	}) {
		return nil
	}
	c.sum.Gaps++
	for _, d := range c.dbs {
		d.flushes++
		d.gaps++
	}
	return nil
}

func (c *checker) report(seq uint64, format string, args ...any) {
	c.sum.Faults++
	c.fault(fmt.Sprintf("write set %d: %s", seq, fmt.Sprintf(format, args...)))
}

func (c *checker) event(e *history.Event) {
	at := time.UnixMilli(e.At).UTC()
	if c.sum.Events++; c.sum.First.IsZero() {
		c.sum.First = at
	}
	c.sum.Last = at
	switch {
	case e.How == store.LockFlushed:
		c.db(e.DB).flushes++
	case e.How == store.LockSwapped:
		a, b := c.db(e.DB), c.db(int(e.Holds))
		c.dbs[e.DB], c.dbs[int(e.Holds)] = b, a
	case e.How == store.LockGranted:
		c.grant(e)
	case e.How.Ends() && (e.Owner != "" || e.Holds == 0): // a forced end of a semaphore names no owner, but says how many there were
		c.end(e)
	}
}

func (c *checker) db(n int) *database {
	d := c.dbs[n]
	if d == nil {
		d = &database{locks: map[string]*lockState{}}
		c.dbs[n] = d
	}
	return d
}

func (c *checker) state(e *history.Event) *lockState {
	d := c.db(e.DB)
	l := d.locks[e.Key]
	if l == nil {
		l = &lockState{}
		d.locks[e.Key] = l
	}
	if l.flushes != d.flushes {
		l.owners, l.flushes = nil, d.flushes
	}
	return l
}

func (l *lockState) set(owner string, has owning) {
	if l.owners == nil {
		l.owners = map[string]owning{}
	}
	l.owners[owner] = has
}

func (c *checker) grant(e *history.Event) {
	l := c.state(e)
	_, again := l.owners[e.Owner]
	if !again {
		c.sum.Grants++
		for owner, has := range l.owners {
			if !together(e, owner, has) {
				c.report(e.Seq, "%s of database %d was granted to %q while %q held it", e.Key, e.DB, e.Owner, owner)
				break
			}
		}
		// The first hold of the same owner may be one of before a gap.
		further := e.Holds > 1 && l.gaps != c.db(e.DB).gaps
		if shares := further || e.Kind == "redisson-readwrite" || e.Kind == "symfony"; e.Token < l.token || e.Token == l.token && !shares {
			c.report(e.Seq, "%s of database %d was granted with the token %d, after %d", e.Key, e.DB, e.Token, l.token)
		}
		l.token, l.gaps = max(l.token, e.Token), c.db(e.DB).gaps
	}
	l.set(e.Owner, owning{e.Kind, e.Permits})
	if c.exceeds(l, e) {
		c.report(e.Seq, "%s of database %d has %d permits, and was granted to owners with more", e.Key, e.DB, e.Limit)
	}
}

// together reports whether the owner of a grant may hold the lock beside another owner.
func together(e *history.Event, owner string, has owning) bool {
	switch e.Kind {
	case "shared", "limit":
		return has.kind == e.Kind
	case "symfony":
		return true // the key does not tell a reader from a writer that has just become one
	case "redisson-readwrite":
		return threadOf(owner) == threadOf(e.Owner) || has.kind == e.Kind && !writes(owner) && !writes(e.Owner)
	}
	return false
}

const writer = ":write"

func writes(owner string) bool { return strings.HasSuffix(owner, writer) }

func threadOf(owner string) string { return strings.TrimSuffix(owner, writer) }

func (c *checker) exceeds(l *lockState, e *history.Event) bool {
	if e.Kind != "limit" {
		return false
	}
	sum := int64(0)
	for _, has := range l.owners {
		sum += has.permits
	}
	return sum > e.Limit
}

// lateness is how much the time of an entry may be set back against that of its evaluation, in ms.
const lateness = 50

func (c *checker) end(e *history.Event) {
	l := c.state(e)
	if e.Holds == 0 {
		if delete(l.owners, e.Owner); len(l.owners) == 0 {
			l.owners = nil // of a lock that is free, only the token is remembered
		}
	} else {
		l.set(e.Owner, owning{e.Kind, e.Permits})
	}
	if e.How == store.LockExpired && e.Deadline > e.Lease+lateness {
		c.report(e.Seq, "the lease of %q for %s of database %d ended %d ms too early", e.Owner, e.Key, e.DB, e.Deadline-e.Lease-lateness)
	}
}
