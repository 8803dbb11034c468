package store

import (
	"math"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// bitFieldCommands are the commands on integers inside strings.
var bitFieldCommands = []Command{
	{
		Name: "bitfield", Arity: -2, Flags: Write | DenyOOM, Group: "bitmap", Since: "3.2.0",
		Keys: []KeySpec{{Begin: 1, Step: 1, Flags: KeyRW | KeyAccess | KeyUpdate | KeyVariable,
			Notes: "This command allows both access and modification of the key"}},
		Summary: "Reads and changes integers inside a string.",
		Usage:   "key [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> [GET encoding offset | [OVERFLOW <WRAP | SAT | FAIL>] <SET encoding offset value | INCRBY encoding offset increment> ...]]", Run: cmdBitField,
	},
	{
		Name: "bitfield_ro", Arity: -2, Flags: ReadOnly | Fast, Group: "bitmap", Since: "6.0.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Reads integers inside a string.",
		Usage:   "key [GET encoding offset [GET encoding offset ...]]", Run: cmdBitFieldRO,
	},
}

// bitOverflow says what BITFIELD does when an integer does not fit.
type bitOverflow uint8

const (
	overflowWrap bitOverflow = iota
	overflowSat
	overflowFail
)

// bitOp is one operation of BITFIELD.
type bitOp struct {
	kind     byte // 'g'et, 's'et or 'i'ncrement
	signed   bool
	width    int64
	offset   int64
	value    int64
	overflow bitOverflow
}

func cmdBitField(c *Ctx) Reply   { return c.bitField(false) }
func cmdBitFieldRO(c *Ctx) Reply { return c.bitField(true) }

func (c *Ctx) parseBitOps(args [][]byte) (ops []bitOp, highest int64, fault *Reply) {
	highest = -1 // the highest bit that an operation writes
	overflow := overflowWrap
	for len(args) > 0 {
		c.work(1)
		if equalFold(args[0], "overflow") && len(args) > 1 {
			switch word := args[1]; {
			case equalFold(word, "wrap"):
				overflow = overflowWrap
			case equalFold(word, "sat"):
				overflow = overflowSat
			case equalFold(word, "fail"):
				overflow = overflowFail
			default:
				return nil, 0, &badOverflow
			}
			args = args[2:]
			continue
		}
		op, used, fault := parseBitOp(args)
		if fault != nil {
			return nil, 0, fault
		}
		if op.overflow = overflow; op.kind != 'g' {
			highest = max(highest, op.offset+op.width-1)
		}
		ops = append(ops, op)
		args = args[used:]
	}
	return ops, highest, nil
}

func parseBitOp(args [][]byte) (op bitOp, used int, fault *Reply) {
	switch {
	case equalFold(args[0], "get") && len(args) > 2:
		op.kind, used = 'g', 3
	case equalFold(args[0], "set") && len(args) > 3:
		op.kind, used = 's', 4
	case equalFold(args[0], "incrby") && len(args) > 3:
		op.kind, used = 'i', 4
	default:
		return op, 0, &syntaxError
	}
	if fault := op.parseType(args[1]); fault != nil {
		return op, 0, fault
	}
	if op.offset, fault = parseBitOffset(args[2], op.width); fault != nil {
		return op, 0, fault
	}
	if op.kind != 'g' {
		var ok bool
		if op.value, ok = redistext.ParseInt(args[3]); !ok {
			return op, 0, &notInteger
		}
	}
	return op, used, nil
}

func (op *bitOp) parseType(arg []byte) *Reply {
	if len(arg) == 0 || arg[0] != 'i' && arg[0] != 'u' {
		return &badBitType
	}
	op.signed = arg[0] == 'i'
	n, ok := redistext.ParseInt(arg[1:])
	if !ok || n < 1 || n > 64 || n == 64 && !op.signed {
		return &badBitType
	}
	op.width = n
	return nil
}

var (
	badOverflow = Err(ErrBitOverflow)
	badBitType  = Err(ErrBitType)
)

func (c *Ctx) bitField(readonly bool) Reply {
	ops, highest, fault := c.parseBitOps(c.Args[2:])
	if fault != nil {
		return *fault
	}
	if refusal, refused := c.tooMany(int64(len(ops))); refused {
		return refusal
	}
	s := &bitString{}
	switch {
	case highest < 0:
		e, ok := c.read(TypeString)
		if !ok {
			return wrongType
		}
		if e != nil {
			s.old = e.str // no copy is needed, because no operation writes
		}
	case readonly:
		return Err(ErrBitFieldRO)
	default:
		if s, fault = c.growString(highest); fault != nil {
			return *fault
		}
	}
	elems := make([]Reply, len(ops))
	changes := false
	for i := range ops {
		c.work(1)
		old := ops[i].load(s)
		elems[i] = ops[i].run(s)
		wrote := ops[i].kind != 'g' && elems[i].Kind != Null
		changes = changes || wrote && (s.grown() || ops[i].load(s) != old)
	}
	if highest >= 0 {
		c.writeString(s)
	}
	if changes {
		c.eventOn(eventString, "setbit")
	}
	return List(elems...)
}

func (op *bitOp) run(s *bitString) Reply {
	old := op.load(s)
	if op.kind == 'g' {
		return Int(old)
	}
	base, add := op.value, int64(0)
	if op.kind == 'i' {
		base, add = old, op.value
	}
	value, fits := op.add(base, add)
	if !fits && op.overflow == overflowFail {
		return Nil
	}
	op.save(s, value)
	if op.kind == 's' {
		return Int(old)
	}
	return Int(value)
}

// load reads the integer; bits beyond the end of the string are zero.
func (op *bitOp) load(s *bitString) int64 {
	v := uint64(0)
	for at := op.offset; at < op.offset+op.width; {
		b, n := op.next(s, at)
		v = v<<n | uint64(b)
		at += n
	}
	if op.signed {
		return int64(v) << (64 - op.width) >> (64 - op.width)
	}
	return int64(v)
}

// next returns the bits of the integer from the bit at of the string to the end of the byte or of the integer.
func (op *bitOp) next(s *bitString, at int64) (bits byte, n int64) {
	n = min(8-at&7, op.offset+op.width-at)
	return s.at(int(at>>3)) << (at & 7) >> (8 - n), n
}

func (op *bitOp) save(s *bitString, value int64) {
	end := op.offset + op.width
	for at := op.offset; at < end; {
		old, n := op.next(s, at)
		at += n
		changed := byte(value>>(end-at))&(1<<n-1) ^ old
		i := int((at - 1) >> 3)
		s.set(i, s.at(i)^changed<<(7-(at-1)&7))
	}
}

// add returns base+add as an integer of the operation's type. If the sum does not fit, add clamps it for overflowSat, else wraps it.
func (op *bitOp) add(base, add int64) (sum int64, fits bool) {
	low, high := int64(0), int64(math.MaxInt64)
	if op.width < 64 {
		high = 1<<op.width - 1
	}
	if op.signed {
		high = 1<<(op.width-1) - 1
		low = -high - 1
	}
	sum = base + add
	// A negative value of an unsigned type stands for a value above any limit.
	above := base > high || !op.signed && base < 0
	below := base < low && !above
	// With 64 bits, high-base can overflow: test only sums that can exceed the limit. With fewer bits, it overflows for some illegal bases,
	// and calls the sum too high, as Redis does.
	if (add > 0 || op.signed) && (op.width < 64 || add > 0 && base >= 0) {
		above = above || add > high-base
	}
	if add < 0 && (op.width < 64 || base < 0) {
		below = below || !above && add < low-base
	}
	switch {
	case !above && !below:
		return sum, true
	case op.overflow == overflowSat && above:
		return high, false
	case op.overflow == overflowSat:
		return low, false
	}
	shift := 64 - op.width
	if op.signed {
		return sum << shift >> shift, false
	}
	return int64(uint64(sum) << shift >> shift), false
}
