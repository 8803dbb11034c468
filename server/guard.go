package server

import (
	"io"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
)

// The guard stands between the socket and redcon's reader. redcon has no limits, drops good commands that came in the same read as a
// bad one, and closes the connection on an empty array. So the guard reads the protocol first, by the rules of Redis, and hands over
// only complete, well-formed arrays. For an event loop, the guard only parses (guard.direct).
//
//	socket → buf → parse: line or payload → out (complete | being built) → redcon
//	                                      ↘ parcel (a large command) → session
//
// The guard itself assembles a large command (largeCommand). redcon gets a stand-in of fixed size, and the session gets the arguments
// from claim. Memory grows with what has arrived, not with what was announced; seriousArg is the exception.
//
// The guard acts on a fault only when every earlier command has been executed, because an AUTH among them changes the limits. Until
// then, the faulty bytes stay in buf.

// MaxPassword is how many bytes a password may have. A client that has not authenticated cannot send a longer argument.
const MaxPassword = 16384

const (
	maxLine      = 64 << 10 // bytes of an inline request, or digits of a header, at most
	maxArgs      = 1<<31 - 1
	largeCommand = 16 << 10 // a command with more bytes of arguments is large …
	largeCount   = 4 << 10  // … and one with more arguments, too: even an empty argument takes memory
	inputBuffer  = 16 << 10
	smallBuffer  = 2 << 10

	argumentBlock = 4 << 10 // the memory that short arguments of a large command share (guard.room)

	keepArgs = 1 << 8 // the largest argv, in arguments, that a loop keeps for later commands

	unauthArgs = 10
	unauthBulk = MaxPassword
	// unauthBatch is how many commands of an unauthenticated client the guard of a loop's connection parses
	// before the client gets the replies.
	unauthBatch = 16
)

// standIn is the command that redcon sees in place of a large one. claim recognizes stand-ins by
// counting commands, so a client cannot forge one.
const standIn = "*1\r\n$6\r\nparcel\r\n"

// policy has the methods of the session that the guard calls: to ask what the client may do, and to report what has arrived.
type policy interface {
	needsAuth() bool
	// batch returns how many commands the guard of a loop's connection parses before they run.
	batch() int
	maxBulk() int64
	maxQuery() int64
	// spared reports whether a client with CLIENT NO-EVICT may hold more bytes although there is no room (clientMemory.sparesWith).
	spared(more int64) bool
	// tooLong returns max-entry-size if no command may have arguments of so many bytes together; else 0.
	tooLong(bytes int64) (limit int64)
	// exempts adds bytes, perhaps negative, to the memory of all clients with CLIENT NO-EVICT, if this client is one of them.
	exempts(by int64)
	// holds adds a number of bytes, which may be negative, to the memory that the client holds besides its large commands.
	holds(by int64)
	// userMemory returns the counters for the large commands that the clients of this client's user send.
	userMemory() *userMemory
	// protocolError sends an error to the client; the connection ends after it.
	protocolError(text string)
	// The method received counts n bytes of input. The method brings counts n bytes of memory for large commands. Both may
	// wait for the garbage collector.
	received(n int)
	brings(n int)
	// waitsForInput is called before a read that may wait, unless a loop serves the connection.
	waitsForInput()
}

// parcel is a large command that bypasses redcon.
type parcel struct {
	index uint64 // how many commands were delivered before this one
	args  [][]byte
}

type guard struct {
	net.Conn
	policy policy
	face   Face // of the listener
	secret bool // the listener speaks TLS

	buf  []byte // input; buf[r:w] has not been parsed
	r, w int
	line []byte // the beginning of a line whose end has not arrived

	out   []byte // commands for redcon; out[done:] is being built
	done  int
	sent  int   // bytes of out[:done] that redcon has read
	marks []int // start and end of each argument in out[done:]

	// If the field direct is true, a loop serves the connection without redcon, and the field out holds only the bytes of
	// arguments:
	direct bool
	argv   [][]byte // arguments of the complete commands, one after the other
	ends   []int    // where each command ends in argv

	left    int64 // arguments of the current command still to come
	payload int64 // bytes of the current argument still to come
	skip    int   // bytes of the line end after an argument still to come
	inBulk  bool
	size    int64    // bytes of the current command so far
	args    int64    // bytes of its arguments so far; the last one counts with its bytes that are still to come
	cut     int64    // the max-entry-size that made cutShort cut the current command; 0: it is not cut
	large   [][]byte // arguments of the current command, if it is large …
	block   []byte   // … and memory for its next short arguments

	memory *clientMemory // for all clients; nil: memory is not counted
	held   atomic.Int64  // the memory of large commands, complete or not (see the method holds) …
	whole  int64         // … and how much of it belongs to complete commands
	user   *userMemory   // of the user who has sent the complete commands; nil if whole is 0

	vain    int          // lines without a command that loop.inVain has not charged for yet; a long line counts several times
	strange atomic.Int64 // bytes of buffers, while the client has not authenticated

	parcels   []parcel
	delivered uint64 // commands put into the field out so far
	claimed   uint64

	ahead    []byte // input that watch has read …
	aheadEnd error  // … and the error that ended its reading

	failure string // protocol error to report
	end     error  // what Read returns from now on
}

func newGuard(c net.Conn) *guard {
	return &guard{Conn: c, buf: make([]byte, 0, smallBuffer)}
}

// Read gives redcon the next complete commands.
func (g *guard) Read(p []byte) (int, error) {
	for {
		if g.sent < g.done {
			n := copy(p, g.out[g.sent:g.done])
			g.sent += n
			if g.sent == g.done {
				g.recycle()
			}
			return n, nil
		}
		if g.end != nil {
			return 0, g.end
		}
		g.parse()
		if g.done > 0 {
			continue
		}
		if g.failure != "" {
			g.policy.protocolError("Protocol error: " + g.failure)
			g.end = io.EOF
		} else if g.end == nil {
			g.policy.waitsForInput()
			g.fill()
		}
	}
}

// recycle frees the complete commands in g.out after redcon has read them, or after a loop has run them.
func (g *guard) recycle() {
	g.release()
	if g.direct {
		// A client that has once sent much must not keep the memory.
		if cap(g.argv) > keepArgs {
			g.argv, g.ends = nil, nil
		}
		clear(g.argv)
		g.argv, g.ends = g.argv[:0], g.ends[:0]
	}
	if rest := copy(g.out, g.out[g.done:]); rest == 0 && g.direct && cap(g.out) > inputBuffer {
		g.out = nil
	} else {
		g.out = g.out[:rest]
	}
	for i := range g.marks { // also of arguments of which nothing has arrived
		g.marks[i] -= g.done
	}
	g.sent, g.done = 0, 0
}

// fill reads from the socket: directly into the current argument if its command is large, otherwise into g.buf.
func (g *guard) fill() {
	if g.large != nil && g.cut == 0 && g.inBulk && g.payload > 0 {
		g.fillArg()
		return
	}
	if cap(g.buf) < inputBuffer && g.w == cap(g.buf) && !g.policy.needsAuth() {
		// The last read filled the buffer: this client sends more than most.
		g.buf = make([]byte, 0, inputBuffer)
	}
	n, err := g.read(g.buf[:cap(g.buf)])
	g.buf = g.buf[:n]
	g.r, g.w = 0, n
	g.policy.received(n)
	if n == 0 && err != nil {
		g.end = err
	}
}

// release stops counting the memory of the complete large commands: they have been run, or will never be run.
func (g *guard) release() {
	g.holds(g.takes() - g.held.Load())
	g.complete(0)
}

// drop does what release does, and also discards the large command that is being built.
func (g *guard) drop() {
	g.large, g.block = nil, nil
	g.release()
}

// takes returns the memory of the large command that is being built, with argumentCost for each argument and the whole capacity of the
// last.
func (g *guard) takes() int64 {
	if len(g.large) == 0 || g.cut > 0 {
		return 0
	}
	last := g.large[len(g.large)-1]
	return g.size + int64(cap(last)-len(last)) + argumentCost*int64(len(g.large))
}

// complete sets how many of the held bytes belong to complete commands, and counts them for the user who has sent the first of
// these commands.
func (g *guard) complete(bytes int64) {
	switch {
	case g.memory == nil || bytes == g.whole:
		return
	case g.user == nil:
		g.user = g.policy.userMemory()
	}
	g.user.complete.Add(bytes - g.whole)
	if g.whole = bytes; bytes == 0 {
		g.user = nil
	}
}

// holds adds a number of bytes, which may be negative, to the counts of the memory that large commands take.
func (g *guard) holds(by int64) {
	if by != 0 && g.memory != nil {
		if by > 0 {
			g.policy.brings(int(by))
		}
		g.held.Add(by)
		g.memory.arriving.Add(by)
		g.policy.exempts(by)
		g.memory.changed(by)
	}
}

// Each doubling of a large argument leaves garbage. After seriousArg bytes, the guard allocates the rest of up to wholeArg bytes at
// once.
const (
	seriousArg = 256 << 10
	wholeArg   = 8 << 20
)

// fillArg reads payload into the last argument of a large command. The argument's memory doubles as the
// payload arrives; see seriousArg.
func (g *guard) fillArg() {
	arg := &g.large[len(g.large)-1]
	if len(*arg) == cap(*arg) {
		grow := min(g.payload, max(int64(len(*arg)), largeCommand))
		if len(*arg) >= seriousArg && int64(len(*arg))+g.payload <= wholeArg {
			grow = g.payload
		}
		if g.memory != nil && (g.memory.noRoomToGrow(grow) || g.hopeless(g.payload)) && !g.policy.spared(grow) && g.atRest() {
			g.refuse(g.size)
			return
		}
		*arg = slices.Grow(*arg, int(grow))
	}
	room := (*arg)[len(*arg):cap(*arg)]
	if int64(len(room)) > g.payload {
		room = room[:g.payload]
	}
	n, err := g.read(room)
	*arg = (*arg)[:len(*arg)+n]
	g.payload -= int64(n)
	g.grew(int64(n))
	g.policy.received(n)
	if n == 0 && err != nil {
		g.end = err
	}
}

// hopeless reports whether an announced size is more than all clients together may hold, so that the guard need not read it.
func (g *guard) hopeless(bytes int64) bool {
	limit := g.memory.limit.Load()
	return limit > 0 && bytes > limit
}

// command returns the arguments of the complete command with index i, for a loop.
func (g *guard) command(i int) [][]byte {
	start := 0
	if i > 0 {
		start = g.ends[i-1]
	}
	return g.argv[start:g.ends[i]:g.ends[i]]
}

// claim returns the arguments of the next command that redcon delivered: its own arguments, or the
// parcel's if the command is a stand-in.
func (g *guard) claim(args [][]byte) [][]byte {
	index := g.claimed
	g.claimed++
	if len(g.parcels) > 0 && g.parcels[0].index == index {
		args = g.parcels[0].args
		g.parcels[0] = parcel{}
		g.parcels = g.parcels[1:]
	}
	return args
}

// Write drops redcon's own flushes, which are empty: replies go through the session's outbox, which
// writes to the socket directly.
func (g *guard) Write(p []byte) (int, error) { return len(p), nil }

// commit completes the command being built.
func (g *guard) commit() {
	if g.direct {
		g.commitDirect()
		return
	}
	if g.large != nil {
		g.out = append(g.out[:g.done], standIn...)
		g.parcels = append(g.parcels, parcel{g.delivered, g.large})
		g.large, g.block = nil, nil
		g.complete(g.held.Load())
	}
	g.delivered++
	g.done = len(g.out)
	g.marks = g.marks[:0]
	g.size = 0
}

// commitDirect does what commit does, for a loop. Arguments of earlier commands stay valid when append moves g.out: they refer to the
// old memory.
func (g *guard) commitDirect() {
	if g.large != nil {
		g.out = g.out[:g.done]
		if len(g.argv) == 0 {
			g.argv = g.large // without a copy of a long list
		} else {
			g.argv = append(g.argv, g.large...)
		}
		g.large, g.block = nil, nil
		g.complete(g.held.Load())
	}
	for i := 0; i < len(g.marks); i += 2 {
		g.argv = append(g.argv, g.out[g.marks[i]:g.marks[i+1]:g.marks[i+1]])
	}
	g.ends = append(g.ends, len(g.argv))
	g.done = len(g.out)
	g.marks = g.marks[:0]
	g.size = 0
}

// addHeader appends a header such as "*3\r\n", which only redcon needs.
func (g *guard) addHeader(kind byte, n int64) {
	if g.direct {
		return
	}
	g.out = append(g.out, kind)
	g.out = strconv.AppendInt(g.out, n, 10)
	g.out = append(g.out, '\r', '\n')
}
