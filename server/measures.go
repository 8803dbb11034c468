package server

import (
	"github.com/lockstep-io/lockstep/cluster/tally"
	"github.com/lockstep-io/lockstep/store"
)

// What /metrics shows of the commands. Unlike the figures of INFO, these do not go back at CONFIG RESETSTAT.

// CommandFigures are about one command, with its subcommands. Their number depends only on the table of commands.
type CommandFigures struct {
	Name, Group string

	Calls, Failed, Rejected uint64
	// Took has the durations, in ns, of those calls that ran while latency-tracking was on, without blocking commands.
	Took tally.Seen
}

// CommandBounds are the upper bounds of the buckets of CommandFigures.Took, in seconds.
func CommandBounds() []float64 {
	bounds := make([]float64, len(durations{})-1)
	for i := range bounds {
		bounds[i] = float64(int64(1024)<<i) / 1e9
	}
	return bounds
}

// EachCommand calls fn for each command that clients have sent.
func (srv *Server) EachCommand(fn func(CommandFigures)) {
	for _, cmd := range srv.table.All() {
		f := srv.stats.figures(cmd)
		if f.Calls+f.Failed+f.Rejected > 0 {
			fn(f)
		}
	}
}

// Clients returns how many clients are connected, and how many of them wait in a blocking command or a pause.
func (srv *Server) Clients() (connected, blocked int64) {
	return int64(srv.clients()), srv.stats.blocked.Load() + int64(srv.pause.count())
}

// figures returns the figures of a command.
func (st *stats) figures(cmd *store.Command) CommandFigures {
	st.mu.Lock() // a reset must not come between two readings
	defer st.mu.Unlock()
	f := CommandFigures{Name: cmd.FullName(), Group: cmd.Group, Took: tally.Seen{Upto: make([]uint64, len(durations{})-1)}}
	st.calls[cmd].addTo(&f)
	for i := range cmd.Sub {
		st.calls[&cmd.Sub[i]].addTo(&f)
	}
	timed := uint64(0)
	for i, n := range f.Took.Upto {
		timed += n
		f.Took.Upto[i] = timed
	}
	return f
}

// addTo adds the figures of one command to those of its container. Upto gets the number in each bucket.
func (c *callStats) addTo(f *CommandFigures) {
	timed := int64(0)
	for i := range c.took {
		n := c.took[i].Load() + c.before.took[i]
		timed += n
		if i < len(f.Took.Upto) {
			f.Took.Upto[i] += uint64(n)
		}
	}
	f.Took.Count += uint64(timed)
	f.Took.Sum += c.nsec.Load() + c.before.nsec
	f.Calls += uint64(timed + c.untimed.Load() + c.before.untimed)
	f.Failed += uint64(c.failed.Load() + c.before.failed)
	f.Rejected += uint64(c.rejected.Load() + c.before.rejected)
}

// totals are what the counters of a command had counted before the last CONFIG RESETSTAT. stats.mu guards them.
type totals struct {
	took                            [len(durations{})]int64
	nsec, untimed, failed, rejected int64
}

// reset sets the counters to zero, and keeps in before what they have counted. The caller holds stats.mu.
func (c *callStats) reset() {
	for i := range c.took {
		c.before.took[i] += c.took[i].Swap(0)
	}
	c.before.nsec += c.nsec.Swap(0)
	c.before.untimed += c.untimed.Swap(0)
	c.untimedNsec.Store(0)
	c.before.failed += c.failed.Swap(0)
	c.before.rejected += c.rejected.Swap(0)
}
