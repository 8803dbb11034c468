package server

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// stats holds the counters for INFO. They count from the start of the server, or from the last CONFIG RESETSTAT.
type stats struct {
	connections  atomic.Int64 // accepted connections, including those that were then refused
	refused      atomic.Int64 // connections that were refused, or cut off to make room for newcomers
	netIn        atomic.Int64
	netOut       atomic.Int64
	commands     atomic.Int64
	errorReplies atomic.Int64
	outputLimit  atomic.Int64 // clients that an output buffer limit has disconnected
	blocked      atomic.Int64 // sessions that are in a blocking command now; CONFIG RESETSTAT does not reset it

	// These are values of other counters at the last CONFIG RESETSTAT. The counters themselves do not go back, because /metrics shows
	// them, too.
	expired atomic.Uint64 // cluster.Status.Expired
	evicted atomic.Int64  // clientMemory.cut

	deniedFor [store.DeniedChannel + 1]atomic.Int64 // ACL refusals, by store.DenyReason

	calls     map[*store.Command]*callStats // has every command and never changes, so it needs no lock
	untracked *atomic.Bool                  // true if latency-tracking is off

	mu     sync.Mutex
	errors map[string]int64 // how many error replies there were with each error code
}

// callStats counts the calls of one command. nsec is the total time, in ns, of those calls that untimed does not count. rejected calls did
// not run; failed calls returned an error.
type callStats struct {
	nsec, rejected, failed atomic.Int64
	took                   durations    // the durations of all calls except those that untimed counts
	untimed                atomic.Int64 // calls while latency-tracking was off, and those that waited
	untimedNsec            atomic.Int64 // the total time of these
	before                 totals
}

// Scripts can invent error codes. These limits bound how many are counted separately, and how many bytes of each are kept.
const (
	maxErrorCodes = 128
	maxErrorCode  = 64
)

func newStats(table *store.Table, p *params) *stats {
	st := &stats{calls: map[*store.Command]*callStats{}, errors: map[string]int64{}, untracked: &p.untracked}
	for _, cmd := range table.All() {
		st.calls[cmd] = &callStats{}
		for i := range cmd.Sub {
			st.calls[&cmd.Sub[i]] = &callStats{}
		}
	}
	return st
}

// called counts a command that ran.
func (st *stats) called(cmd *store.Command, took time.Duration) {
	st.commands.Add(1)
	c := st.calls[cmd]
	if st.untracked.Load() {
		c.untimed.Add(1)
		c.untimedNsec.Add(int64(took))
	} else {
		c.took.add(took)
		c.nsec.Add(int64(took))
	}
}

// waited counts a blocking command that has ended. Its duration is waiting time.
func (st *stats) waited(cmd *store.Command) {
	st.commands.Add(1)
	st.calls[cmd].untimed.Add(1)
}

// rejected counts a command that was not run; cmd is nil if there is no such command.
func (st *stats) rejected(cmd *store.Command) {
	if cmd != nil {
		st.calls[cmd].rejected.Add(1)
	}
}

// denied counts an ACL refusal.
func (st *stats) denied(why store.DenyReason) { st.deniedFor[why].Add(1) }

// failed counts an error reply; cmd is nil if no command ran.
func (st *stats) failed(cmd *store.Command, text string) {
	st.errorReplies.Add(1)
	if cmd != nil {
		st.calls[cmd].failed.Add(1)
	}
	code, _, _ := strings.Cut(text[:min(len(text), maxErrorCode)], " ")
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, known := st.errors[code]; known {
		st.errors[code]++
	} else if len(st.errors) < maxErrorCodes {
		st.errors[strings.Clone(code)]++ // do not keep the whole reply in memory
	}
}

// reset sets the counters to zero, for CONFIG RESETSTAT. It does not change blocked, expired and evicted.
func (st *stats) reset() {
	for _, n := range []*atomic.Int64{&st.connections, &st.refused, &st.netIn, &st.netOut, &st.commands, &st.errorReplies, &st.outputLimit} {
		n.Store(0)
	}
	for i := range st.deniedFor {
		st.deniedFor[i].Store(0)
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, c := range st.calls {
		c.reset()
	}
	clear(st.errors)
}

// since returns how much a counter has grown. The counter of expired keys starts at 0 again when the state comes from a snapshot.
func since[N int64 | uint64](begin, now N) N {
	if now < begin {
		return now
	}
	return now - begin
}

// rate is the growth of a counter in the last second.
type rate struct {
	now  atomic.Int64
	last int64 // the counter at the last sample; only cron uses this field
}

func (r *rate) sample(total int64) {
	r.now.Store(max(0, total-r.last))
	r.last = total
}

// kbps formats a rate of bytes in KB per second.
func (r *rate) kbps() string { return fmt.Sprintf("%.2f", float64(r.now.Load())/1024) }
