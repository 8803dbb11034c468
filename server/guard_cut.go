package server

import "slices"

// A command with more bytes of arguments than max-entry-size and a little can only be refused (session.mayBeSoLong). The guard
// knows that as soon as an argument is announced. It cuts the command short: it keeps the beginning, which says what the command
// is, and drops the rest as it arrives. The memory for all of an argument of 500 MB, taken in steps and copied at each, would keep
// the other clients of the loop waiting for seconds.
//
// Such a command is the only one of its batch: the limit may depend on the commands before it, and the session asks g.cut.

// These are the parts of a cut command that are kept: more than any check or error message looks at.
const (
	cutArgs     = 64  // the number of arguments
	cutArgument = 128 // bytes of each
)

// cutShort makes the current command one that is cut.
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

// addBeginning is addArgument for a cut command.
func (g *guard) addBeginning() {
	if len(g.large) < cutArgs {
		g.large = append(g.large, make([]byte, 0, cutArgument))
		return
	}
	last := &g.large[cutArgs-1]
	*last = slices.Clip(*last) // it takes nothing of the arguments behind it
}

// keepBeginning takes payload of a cut command.
func (g *guard) keepBeginning(in []byte) {
	last := &g.large[len(g.large)-1]
	*last = append(*last, in[:min(len(in), cap(*last)-len(*last))]...)
}
