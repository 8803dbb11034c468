package datadir

import (
	"io"
	"log/slog"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options are the options of Open.
type Options struct {
	Disk     Disk
	ID       string       // of the node that the directory belongs to
	LogStore string       // LogWAL or LogBolt; "": the one that the directory has, or LogWAL for a new directory
	Lines    hclog.Logger // for messages of the log store and about damaged snapshots
	Hooks    Hooks

	Unfinished bool // set by a restore, which calls Open inside Make: then Open does not check RESTORING, and leaves LOCK to Make
}

// Hooks connect the directory with the node after Open. Any may be nil, but Logger and Fatal go together, and so do Clock and Stop.
type Hooks struct {
	Logger *slog.Logger
	// Fatal ends the process. It is called when the data or the disk can no longer be trusted.
	Fatal func(error)

	// Leads reports whether this node leads. The answer does not change while Raft's main goroutine stores entries. Several goroutines
	// call Leads.
	Leads func() bool
	// Replicates reports whether this node has sent entries to another node since it was started.
	Replicates func() bool
	// Reached returns the index up to which Raft has committed or applied the log in this process.
	Reached func() uint64
	// Cut is called after the end of the log was cut off; last is the index of the last entry left.
	Cut func(last uint64)

	// Clock returns the monotonic time. When Stop is closed, work on snapshots does not rest any more (pace).
	Clock func() time.Duration
	Stop  <-chan struct{}
	// Wrote is told how long each write of the log took, with its sync.
	Wrote func(took time.Duration)
}

func (h *Hooks) leads() bool      { return h.Leads != nil && h.Leads() }
func (h *Hooks) replicates() bool { return h.Replicates != nil && h.Replicates() }

func (h *Hooks) reached() uint64 {
	if h.Reached == nil {
		return 0
	}
	return h.Reached()
}

// hook sets the hooks of the running node.
func (d *Dir) hook(h Hooks) {
	d.Log.hooks = h
	d.Log.writing.took = h.Wrote
	d.Stable = timedStable{fatalStable{d.votes, h.Fatal}, &d.voting, h.Clock}
	if h.Clock != nil {
		d.Snapshots.pace = func() *pace { return newPace(h.Clock, h.Stop) }
		d.Snapshots.clock = h.Clock
	}
}

// Paced returns a reader that rests between reads for as long as its caller works. Hooks.Clock must be set.
func (d *Dir) Paced(in io.Reader) io.Reader {
	return &pacedReader{in: in, pace: d.Snapshots.pace()}
}
