package server

import (
	"bytes"
	"io"
	"slices"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// parse turns the input in g.buf into commands. It stops early at a fault, before and after a command that is cut short and, for a
// loop, after policy.batch commands. At the end, it cuts the client off if memory is short.
func (g *guard) parse() {
	if g.left == 0 {
		g.cut = 0 // if the previous command was cut short, the session has refused it by now
	}
	g.parseInput()
	if g.memory != nil && (g.strange.Load() > 0 || g.policy.needsAuth()) {
		g.countStranger()
	}
	if g.large != nil && g.cut == 0 && g.memory != nil && g.memory.beyond() && !g.policy.spared(0) && g.atRest() {
		g.refuse(g.size)
	}
}

// atRest reports whether no complete command waits to run.
func (g *guard) atRest() bool { return g.done == 0 && len(g.ends) == 0 }

// refuse cuts the client off for lack of memory. holds is how many bytes the log may show for the client.
func (g *guard) refuse(holds int64) {
	g.memory.refused(g.RemoteAddr(), holds)
	g.out, g.line, g.marks = nil, nil, nil
	g.drop()
	if g.strange.Load() > 0 {
		g.setStrange(int64(cap(g.buf))) // g.buf is the only buffer left: stop counting the others now, not when the session ends
	}
	g.end = io.EOF
}

// setStrange sets this client's part of the memory of all unauthenticated clients to n bytes, and returns the new sum of all
// parts.
func (g *guard) setStrange(n int64) (all int64) {
	return g.memory.strangers.Add(n - g.strange.Swap(n))
}

func (g *guard) parseInput() {
	batch := g.policy.batch()
	for g.r < g.w && g.failure == "" && g.end == nil {
		var ok bool
		switch {
		case g.inBulk:
			ok = g.takePayload()
		case g.left > 0:
			ok = g.takeLine('\r', "too big bulk count string", g.bulkHeader)
		case g.direct && g.takeWhole():
			ok = true
		case g.startsWith() == '*':
			ok = g.takeLine('\r', "too big mbulk count string", g.arrayHeader)
		case g.startsWith() == tlsRecord:
			g.failure = noTLSHere
		default:
			ok = g.takeLine('\n', "too big inline request", g.inline)
		}
		if !ok || len(g.ends) >= batch || g.cut > 0 && g.left == 0 {
			return
		}
	}
}

// tlsRecord is the first byte that a TLS client sends. Taken for the beginning of an inline request, it would make both sides wait
// forever.
const (
	tlsRecord = 0x16
	noTLSHere = "this port does not speak TLS"
)

// takeWhole is a loop's fast path for a complete array of small arguments. For other input, takeWhole returns false and changes
// nothing.
func (g *guard) takeWhole() bool {
	if len(g.line) > 0 || g.policy.needsAuth() {
		return false
	}
	in := g.buf[g.r:g.w]
	n, i := shortHeader(in, '*')
	had := len(g.argv)
	for ; i > 0 && n > 0; n-- {
		size, skip := shortHeader(in[i:], '$')
		start := i + skip
		i = start + size
		if skip == 0 || i+2 > len(in) {
			i = 0
			break
		}
		g.argv = append(g.argv, in[start:i:i])
		i += 2
	}
	if i == 0 || len(g.argv) == had || int64(i) > min(g.policy.maxQuery(), g.policy.maxBulk()) {
		g.argv = g.argv[:had]
		return false
	}
	g.r += i
	g.ends = append(g.ends, len(g.argv))
	return true
}

// shortHeader reads a header such as "*3\r\n" of one to four digits without a leading zero. size is the header's length, or 0.
func shortHeader(in []byte, kind byte) (n, size int) {
	if len(in) < 4 || in[0] != kind {
		return 0, 0
	}
	for i, c := range in[1:min(len(in)-1, 6)] {
		switch {
		case c >= '0' && c <= '9' && i < 4:
			n = n*10 + int(c-'0')
		case c == '\r' && i > 0 && in[i+2] == '\n' && (in[1] != '0' || i == 1):
			return n, i + 3
		default:
			return 0, 0
		}
	}
	return 0, 0
}

// startsWith returns the first byte of the current line.
func (g *guard) startsWith() byte {
	if len(g.line) > 0 {
		return g.line[0]
	}
	return g.buf[g.r]
}

// takeLine passes the next line, without its end, to the function use, and consumes the line if use returns true. takeLine returns
// false if parsing must stop. tooLong is the fault of a line that is too long.
//
// The argument end is '\n' for an inline request, or '\r' for a header, whose end also has the next byte. Like Redis, takeLine finds no
// end after a zero byte.
func (g *guard) takeLine(end byte, tooLong string, use func(line []byte) bool) bool {
	in := g.buf[g.r:g.w]
	tail := 0
	if end == '\r' {
		tail = 1
	}
	if len(g.line) == 0 {
		if i := bytes.IndexByte(in, end); i >= 0 && i+tail < len(in) && i <= maxLine && bytes.IndexByte(in[:i], 0) < 0 {
			if !use(in[:i]) {
				return false
			}
			g.r += i + tail + 1
			return true
		}
	}
	return g.takeLongLine(in, end, tail, tooLong, use)
}

// takeLongLine does what takeLine does, for a line that comes in pieces, is too long, or has a zero byte.
func (g *guard) takeLongLine(in []byte, end byte, tail int, tooLong string, use func(line []byte) bool) bool {
	have := len(g.line)
	g.line = append(g.line, in...)
	i := bytes.IndexByte(g.line, end)
	if z := bytes.IndexByte(g.line, 0); z >= 0 && z < i {
		i = -1
	}
	if i < 0 && len(g.line) > maxLine || i > maxLine {
		g.line = g.line[:have]
		return g.fault(tooLong)
	}
	if i < 0 || i+tail >= len(g.line) {
		g.r = g.w
		return true
	}
	if !use(g.line[:i]) {
		g.line = g.line[:have]
		return false
	}
	g.r += i + tail + 1 - have
	g.line = g.line[:0]
	if cap(g.line) > inputBuffer {
		g.line = nil
	}
	return true
}

// fault sets g.failure, which ends the connection, unless earlier commands still have to run: the guard then parses the faulty input
// again after them.
func (g *guard) fault(text string) bool {
	if g.atRest() {
		g.failure = text
	}
	return false
}

func (g *guard) arrayHeader(line []byte) bool {
	n, valid := redistext.ParseInt(line[1:])
	switch {
	case !valid || n > maxArgs:
		return g.fault("invalid multibulk length")
	case n > unauthArgs && g.policy.needsAuth():
		return g.fault("unauthenticated multibulk length")
	}
	if n <= 0 {
		g.vain++
	} else {
		g.left, g.args = n, 0
		g.addHeader('*', n)
		g.grew(int64(len(line)) + 2)
	}
	return true
}

func (g *guard) bulkHeader(line []byte) bool {
	if len(line) == 0 || line[0] != '$' {
		got := "\r"
		if len(line) > 0 {
			got = string(line[:1])
		}
		return g.fault("expected '$', got '" + got + "'")
	}
	n, valid := redistext.ParseInt(line[1:])
	switch {
	case !valid || n < 0 || n > g.policy.maxBulk():
		return g.fault("invalid bulk length")
	case n > unauthBulk && g.policy.needsAuth():
		return g.fault("unauthenticated bulk length")
	}
	if limit := g.policy.tooLong(g.args + n); limit > 0 && g.cut == 0 {
		if !g.atRest() {
			return false
		}
		g.cutShort(limit)
	}
	g.inBulk, g.payload, g.skip = true, n, 2
	g.args += n
	if !g.addArgument(n) {
		return false
	}
	g.grew(int64(len(line)) + 2)
	return true
}

// addArgument makes room for an argument of n bytes. It reports false if it has cut the client off.
func (g *guard) addArgument(n int64) bool {
	if g.large == nil && (int64(len(g.out)-g.done)+n > largeCommand || len(g.marks) >= 2*largeCount) {
		g.makeParcel()
	}
	switch {
	case g.cut > 0:
		g.addBeginning()
	case g.large != nil:
		if len(g.large) == cap(g.large) { // double it: append would grow a long list by a quarter, and so copy four times as much
			if list := (int64(len(g.large)) + g.left) * argumentCost; g.memory != nil && g.hopeless(list) && !g.policy.spared(list) && g.atRest() {
				g.refuse(list)
				return false
			}
			g.large = slices.Grow(g.large, int(min(int64(len(g.large)), g.left)))
		}
		g.large = append(g.large, g.room(n))
	default:
		g.addHeader('$', n)
		g.marks = append(g.marks, len(g.out), len(g.out)+int(n))
	}
	return true
}

// room returns memory for an argument of a large command. Short arguments share blocks, because each object costs the garbage collector
// time.
func (g *guard) room(n int64) []byte {
	if n > argumentBlock/16 {
		return make([]byte, 0, min(n, largeCommand))
	}
	if int64(len(g.block)) < n {
		g.block = make([]byte, argumentBlock)
	}
	arg := g.block[:0:n]
	g.block = g.block[n:]
	return arg
}

// makeParcel makes the current command a large one: it moves the arguments that have arrived from g.out to g.large.
func (g *guard) makeParcel() {
	have := int64(len(g.marks) / 2)
	g.large = make([][]byte, 0, min(g.left+have, max(2*have, 64)))
	arrived := slices.Clone(g.out[g.done:])
	for i := 0; i < len(g.marks); i += 2 {
		start, end := g.marks[i]-g.done, g.marks[i+1]-g.done
		g.large = append(g.large, arrived[start:end:end])
	}
	g.out = g.out[:g.done]
	g.marks = g.marks[:0]
}

// takePayload moves what has arrived of the current argument into the command. It does not check that the two bytes after the argument
// are "\r\n".
func (g *guard) takePayload() bool {
	in := g.buf[g.r:g.w]
	if g.payload > 0 {
		n := int(min(g.payload, int64(len(in))))
		switch {
		case g.cut > 0:
			g.keepBeginning(in[:n])
		case g.large != nil:
			last := len(g.large) - 1
			g.large[last] = append(g.large[last], in[:n]...)
		default:
			g.out = append(g.out, in[:n]...)
		}
		g.r += n
		g.payload -= int64(n)
		g.grew(int64(n))
		in = in[n:]
		if g.payload > 0 {
			return true
		}
	}
	n := min(g.skip, len(in))
	g.r += n
	g.skip -= n
	if g.skip > 0 {
		return true
	}
	g.inBulk = false
	if g.large == nil && !g.direct {
		g.out = append(g.out, '\r', '\n')
	}
	if g.left--; g.left == 0 {
		g.commit()
	}
	return true
}

// grew adds n bytes to the size of the current command. It counts a large command's memory in steps of largeCommand bytes or more.
func (g *guard) grew(n int64) {
	g.size += n
	if by := g.takes() - g.held.Load(); by >= largeCommand {
		g.holds(by)
	}
	if g.size > g.policy.maxQuery() {
		g.end = io.EOF
	}
}

// countStranger counts the buffers of a client that has not authenticated. If all such clients take more than their share, it cuts off
// a client whose buffers grow beyond what AUTH needs.
func (g *guard) countStranger() {
	n := int64(0)
	if g.policy.needsAuth() {
		n = int64(cap(g.buf) + cap(g.out) + cap(g.line))
		for _, arg := range g.large {
			n += int64(cap(arg))
		}
	}
	grows := n > g.strange.Load()
	if all := g.setStrange(n); grows && n > 2*smallBuffer && g.atRest() && g.memory.noRoomFor(all) {
		g.refuse(n)
	}
}

// inline converts an inline request into an array.
func (g *guard) inline(line []byte) bool {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	args, ok := redistext.SplitArgs(line)
	if !ok {
		return g.fault("unbalanced quotes in request")
	}
	if len(args) == 0 {
		g.vain += 1 + len(line)/emptyBytes
		return true
	}
	if len(line) > largeCommand {
		g.large = args
	} else {
		g.addHeader('*', int64(len(args)))
		for _, a := range args {
			g.addHeader('$', int64(len(a)))
			g.marks = append(g.marks, len(g.out), len(g.out)+len(a))
			g.out = append(g.out, a...)
			if !g.direct {
				g.out = append(g.out, '\r', '\n')
			}
		}
	}
	g.commit()
	return true
}
