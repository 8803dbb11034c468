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
	LogStore string       // LogWAL or LogBolt; "": the directory's own, or LogWAL for a new one
	Lines    hclog.Logger // for messages of the log store and about damaged snapshots
	Hooks    Hooks

	Unfinished bool // Open neither takes LOCK nor checks RESTORING: Make holds the lock, and is restoring
}

// Hooks are functions of the running node that its data directory calls. They take effect when
// Open has returned; without them every error goes to the caller. Each may be nil, but Logger and
// Fatal come together, and so do Clock and Stop.
type Hooks struct {
	Logger *slog.Logger
	// Fatal ends the process: the content of the disk is unknown.
	Fatal func(error)

	// Leads reports whether this node leads. While Raft's main goroutine stores a leader's
	// entries, the answer stays the same, because only that goroutine changes it. The goroutine
	// of asyncWrites calls Leads, too.
	Leads func() bool
	// Replicates reports whether this node has sent entries to others.
	Replicates func() bool
	// Reached returns the index up to which Raft has committed or applied the log in this process.
	Reached func() uint64
	// Cut is called after the end of the log was cut off, with the index of the last entry left.
	Cut func(last uint64)

	// Clock is monotonic. It measures each piece of work on a snapshot, after which the work rests
	// for as long; closing Stop ends the rests. It also tells when a snapshot was read last.
	Clock func() time.Duration
	Stop  <-chan struct{}
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
	d.Stable = fatalStable{d.votes, h.Fatal}
	if h.Clock != nil {
		d.Snapshots.pace = func() *pace { return newPace(h.Clock, h.Stop) }
		d.Snapshots.clock = h.Clock
	}
}

// Paced returns a reader that reads from in at half speed. It is for the state that a peer has
// sent: nothing urgent waits for it. The directory must have a clock.
func (d *Dir) Paced(in io.Reader) io.Reader {
	return &pacedReader{in: in, pace: d.Snapshots.pace()}
}
