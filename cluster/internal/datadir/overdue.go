package datadir

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A disk that hangs returns no error. While a write of the log, term or vote is overdue, this node must not count as ready.

// overdueAfter is how long a write may take before it is overdue.
const overdueAfter = time.Second

// underway knows since when a write has been going on. The caller makes sure that there is only one at a time.
type underway struct {
	since atomic.Int64        // monotonic time, in ns; 0: no write is going on
	took  func(time.Duration) // is told how long each write took; nil: nobody is
}

// begin notes that a write begins, and returns a function that notes its end. Without a clock it notes nothing.
func (u *underway) begin(clock func() time.Duration) (end func()) {
	if clock == nil {
		return func() {}
	}
	began := max(clock(), 1)
	u.since.Store(int64(began))
	return func() {
		u.since.Store(0)
		if u.took != nil {
			u.took(clock() - began)
		}
	}
}

// overdue returns a message for the operator if the write is overdue, else "". The parameter what names the data that is written.
func (u *underway) overdue(clock func() time.Duration, what string) string {
	since := time.Duration(u.since.Load())
	if since == 0 || clock == nil {
		return ""
	}
	if took := clock() - since; took > overdueAfter {
		return fmt.Sprintf("the disk hangs, or is very slow: a write of %s has been going on for %d s", what, took/time.Second)
	}
	return ""
}

// Overdue returns a message for the operator if a write to the disk is overdue, else "".
func (d *Dir) Overdue() string {
	clock := d.Log.hooks.Clock
	return cmp.Or(d.Log.writing.overdue(clock, "the log"), d.voting.overdue(clock, "the term or a vote"))
}

// timedStable notes when the term and the vote are written. Only Raft's main goroutine writes them.
type timedStable struct {
	raft.StableStore
	writing *underway
	clock   func() time.Duration
}

func (s timedStable) Set(k, v []byte) error {
	defer s.writing.begin(s.clock)()
	return s.StableStore.Set(k, v)
}

func (s timedStable) SetUint64(k []byte, v uint64) error {
	defer s.writing.begin(s.clock)()
	return s.StableStore.SetUint64(k, v)
}
