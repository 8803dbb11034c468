package server

import "slices"

// If an argument makes a command too long (session.mayBeSoLong), the guard keeps only the beginning, which says what the command is.
// Collecting 500 MB would make other clients of the event loop wait for seconds.
//
// The guard parses such a command only when no earlier command waits to run, because an earlier one may change the limit. It parses the
// next command only after the session has refused the cut one, because g.cut has room for one.

// These are the parts of a cut command that the guard keeps: the session needs them to identify the command, and to quote
// arguments in errors.
const (
	cutArgs     = 64  // the number of arguments
	cutArgument = 128 // bytes of each
)

// cutShort makes the guard keep only the beginning of the current command. The argument limit is the present
// max-entry-size.
func (g *guard) cutShort(limit int64) {
	if g.large == nil {
		g.makeParcel()
	}
	g.cut = limit
	kept := make([][]byte, min(len(g.large), cutArgs), cutArgs)
	for i := range kept {
		kept[i] = append(make([]byte, 0, cutArgument), g.large[i][:min(len(g.large[i]), cutArgument)]...)
	}
	g.large = kept
	g.holds(-g.held.Load())
}

// addBeginning does for a cut command what addArgument does for others. Beyond cutArgs arguments, it adds none.
func (g *guard) addBeginning() {
	if len(g.large) < cutArgs {
		g.large = append(g.large, make([]byte, 0, cutArgument))
		return
	}
	last := &g.large[cutArgs-1]
	*last = slices.Clip(*last) // without capacity, so that keepBeginning appends no bytes of later arguments to it
}

// keepBeginning appends bytes of the current argument of a cut command to the last kept argument, as far as that has capacity.
func (g *guard) keepBeginning(in []byte) {
	last := &g.large[len(g.large)-1]
	*last = append(*last, in[:min(len(in), cap(*last)-len(*last))]...)
}
