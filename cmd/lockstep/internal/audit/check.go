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

	"lockstep/server/history"
	"lockstep/store"
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
	c := &checker{fault: fault, locks: map[named]*lockState{}}
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
	c.sum.Locks = len(c.locks)
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
		s.written, s.ahead = e.Seq, &e
		return nil
	}
}

// take returns the events of a write set, without renewals, which a node may leave out.
func (s *source) take(seq uint64) (events []history.Event, err error) {
	for s.ahead != nil && s.ahead.Seq == seq && s.ahead.How != store.LockGap {
		if s.ahead.How != store.LockRenewed {
			events = append(events, *s.ahead)
		}
		if err := s.advance(); err != nil {
			return nil, err
		}
	}
	s.began = true
	return events, nil
}

// checker follows the owners of all locks.
type checker struct {
	fault func(string)
	locks map[named]*lockState
	sum   Summary
}

type named struct {
	db  int
	key string
}

// lockState is what the events say of a lock.
type lockState struct {
	owners map[string]owning
	token  uint64 // the last one of a new owner
}

type owning struct {
	kind    string
	permits int64
}

// merge goes through the events of all nodes in the order of the log.
func (c *checker) merge(sources []*source) error {
	for {
		seq, gap, any := first(sources)
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
			if s.ahead == nil || s.ahead.Seq != seq {
				continue
			}
			hole := s.hole
			s.hole = false
			events, err := s.take(seq)
			if err != nil {
				return err
			}
			if from != nil && !hole && !from.hole && !slices.EqualFunc(events, best, same) {
				c.report(seq, "%s and %s tell different events", from.name, s.name)
			}
			if len(events) >= len(best) {
				best, from = events, s
			}
		}
		for i := range best {
			c.event(&best[i])
		}
	}
}

// same compares what two nodes say of an event. They agree on everything.
func same(a, b history.Event) bool { return a == b }

// first returns the number of the next write set, or the source whose next event is a gap before it.
func first(sources []*source) (seq uint64, gap *source, any bool) {
	for _, s := range sources {
		switch {
		case s.ahead == nil:
			continue
		case any && s.ahead.Seq > seq, any && s.ahead.Seq == seq && s.ahead.How != store.LockGap:
			continue
		}
		seq, any, gap = s.ahead.Seq, true, nil
		if s.ahead.How == store.LockGap {
			gap = s
		}
	}
	return seq, gap, any
}

// gap handles missing events of a node. If no other node has them, the owners are unknown from then on.
func (c *checker) gap(of *source, sources []*source) error {
	of.began, of.hole = false, true
	of.written = 0
	if err := of.advance(); err != nil {
		return err
	}
	if slices.ContainsFunc(sources, func(s *source) bool { return s != of && s.began && s.ahead != nil && s.ahead.How != store.LockGap }) {
		return nil
	}
	c.sum.Gaps++
	for _, l := range c.locks {
		clear(l.owners)
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
		for name, l := range c.locks {
			if name.db == e.DB {
				clear(l.owners)
			}
		}
	case e.How == store.LockSwapped:
		c.swap(e.DB, int(e.Holds))
	case e.How == store.LockGranted:
		c.grant(e)
	case e.How.Ends() && e.Owner != "":
		c.end(e)
	}
}

func (c *checker) swap(a, b int) {
	swapped := make(map[named]*lockState, len(c.locks))
	for name, l := range c.locks {
		switch name.db {
		case a:
			name.db = b
		case b:
			name.db = a
		}
		swapped[name] = l
	}
	c.locks = swapped
}

func (c *checker) state(e *history.Event) *lockState {
	name := named{e.DB, e.Key}
	l := c.locks[name]
	if l == nil {
		l = &lockState{owners: map[string]owning{}}
		c.locks[name] = l
	}
	return l
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
		if shares := e.Kind == "redisson-readwrite" || e.Kind == "symfony"; e.Token < l.token || e.Token == l.token && !shares {
			c.report(e.Seq, "%s of database %d was granted with the token %d, after %d", e.Key, e.DB, e.Token, l.token)
		}
		l.token = max(l.token, e.Token)
	}
	l.owners[e.Owner] = owning{e.Kind, e.Permits}
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
		delete(l.owners, e.Owner)
	} else {
		l.owners[e.Owner] = owning{e.Kind, e.Permits}
	}
	if e.How == store.LockExpired && e.Deadline > e.Lease+lateness {
		c.report(e.Seq, "the lease of %q for %s of database %d ended %d ms too early", e.Owner, e.Key, e.DB, e.Deadline-e.Lease-lateness)
	}
}
