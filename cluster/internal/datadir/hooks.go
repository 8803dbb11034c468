package datadir

import (
	"io"
	"log/slog"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Options are what a data directory is opened with.
type Options struct {
	Disk     Disk
	ID       string       // of the node that the directory belongs to
	LogStore string       // LogWAL or LogBolt; "": as the directory has it, else LogWAL
	Lines    hclog.Logger // for what the log store says, and of damaged snapshots
	Hooks    Hooks
}

// Hooks are what the node that runs gives to its data directory, and what it is told. They
// are in force when Open has returned; without them every error is the caller's. Each may
// be nil, but Logger and Fatal come together, and so do Clock and Stop.
type Hooks struct {
	Logger *slog.Logger
	// Fatal ends the process: it is not known any more what is on the disk.
	Fatal func(error)

	// Leads reports whether this node leads. Raft's main goroutine asks while it stores entries
	// in the name of a leader, and only it can change the answer.
	Leads func() bool
	// Replicates reports whether this node has sent entries to others.
	Replicates func() bool
	// Reached is up to where Raft has committed or applied the log in this process.
	Reached func() uint64
	// Cut is told the last entry that is left when the end of the log has been cut off.
	Cut func(last uint64)

	// Clock is monotonic. Work on snapshots rests by it, until Stop is closed.
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

// hook puts the hooks in force.
func (d *Dir) hook(h Hooks) {
	d.Log.hooks = h
	d.Stable = fatalStable{d.votes, h.Fatal}
	if h.Clock != nil {
		d.Snapshots.pace = func() *pace { return newPace(h.Clock, h.Stop) }
		d.Snapshots.clock = h.Clock
	}
}

// Paced reads at half speed, on a directory with a clock: the state that a peer has sent is
// not urgent.
func (d *Dir) Paced(in io.Reader) io.Reader {
	return &pacedReader{in: in, pace: d.Snapshots.pace()}
}
