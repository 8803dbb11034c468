package store

import (
	"math/bits"

	"github.com/lockstep-io/lockstep/store/redistext"
)

// bitCommands are the commands on the bits of strings. Bit 0 is the highest bit of the first byte.
var bitCommands = []Command{
	{
		Name: "setbit", Arity: 4, Flags: Write | DenyOOM, Group: "bitmap", Since: "2.2.0",
		Keys:    firstKey(KeyRW | KeyAccess | KeyUpdate),
		Summary: "Sets or clears a bit of a string and returns what it was.",
		Usage:   "key offset value", Run: cmdSetBit,
	},
	{
		Name: "getbit", Arity: 3, Flags: ReadOnly | Fast, Group: "bitmap", Since: "2.2.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Returns a bit of a string.",
		Usage:   "key offset", Run: cmdGetBit,
	},
	{
		Name: "bitcount", Arity: -2, Flags: ReadOnly, Group: "bitmap", Since: "2.6.0",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Counts the bits of a string that are set.",
		Usage:   "key [start end [BYTE | BIT]]", Run: cmdBitCount,
	},
	{
		Name: "bitpos", Arity: -3, Flags: ReadOnly, Group: "bitmap", Since: "2.8.7",
		Keys:    firstKey(KeyRO | KeyAccess),
		Summary: "Finds the first bit of a string that is set or clear.",
		Usage:   "key bit [start [end [BYTE | BIT]]]", Run: cmdBitPos,
	},
	{
		Name: "bitop", Arity: -4, Flags: Write | DenyOOM, Group: "bitmap", Since: "2.6.0",
		Keys:    []KeySpec{{Begin: 2, Step: 1, Flags: KeyOW | KeyUpdate}, {Begin: 3, Last: -1, Step: 1, Flags: KeyRO | KeyAccess}},
		Summary: "Stores the result of a bitwise operation on strings.",
		Usage:   "operation destkey key [key ...]", Run: cmdBitOp,
	},
}

// maxBitOffset is the offset of the last bit of the longest string.
const maxBitOffset = maxString*8 - 1

// parseBitOffset parses the offset of a bit. If width is not 0, an offset with a leading # counts
// in units of width bits.
func parseBitOffset(arg []byte, width int64) (offset int64, fault *Reply) {
	hash := width > 0 && len(arg) > 0 && arg[0] == '#'
	if hash {
		arg = arg[1:]
	}
	offset, ok := redistext.ParseInt(arg)
	if hash && offset <= maxBitOffset {
		offset *= width
	}
	if !ok || offset < 0 || offset > maxBitOffset {
		return 0, &badBitOffset
	}
	return offset, nil
}

var (
	badBitOffset = Err(ErrBitOffset)
	badBit       = Err(ErrBit)
	badBitArg    = Err(ErrBitArgument)
)

// bitAt returns a bit of a string, 0 beyond its end.
func bitAt(s string, i int64) byte {
	if i>>3 >= int64(len(s)) {
		return 0
	}
	return s[i>>3] >> (7 - i&7) & 1
}

func cmdSetBit(c *Ctx) Reply {
	offset, fault := parseBitOffset(c.Args[2], 0)
	if fault != nil {
		return *fault
	}
	bit, ok := redistext.ParseInt(c.Args[3])
	if !ok || bit != 0 && bit != 1 {
		return badBit
	}
	s, fault := c.growString(offset)
	if fault != nil {
		return *fault
	}
	at := int(offset >> 3)
	b := s.at(at)
	old := b >> (7 - offset&7) & 1
	if int64(old) != bit {
		s.set(at, b^0x80>>(offset&7))
	}
	c.writeString(s)
	if int64(old) != bit || s.grown() {
		c.eventOn(eventString, "setbit")
	}
	return Int(int64(old))
}

// bitString is a string that a command modifies. Changed bytes are apart, so that a small change is little work.
type bitString struct {
	old    string
	length int
	bytes  map[int]byte // the changed bytes, by index
}

func (s *bitString) grown() bool { return s.length > len(s.old) }

// oldAt returns a byte of the string as it was, 0 beyond its end.
func (s *bitString) oldAt(i int) byte {
	if i < len(s.old) {
		return s.old[i]
	}
	return 0
}

// at returns a byte of the string as it is now.
func (s *bitString) at(i int) byte {
	if b, ok := s.bytes[i]; ok {
		return b
	}
	return s.oldAt(i)
}

func (s *bitString) set(i int, b byte) {
	switch {
	case b == s.oldAt(i):
		delete(s.bytes, i)
	case s.bytes == nil:
		s.bytes = map[int]byte{i: b}
	default:
		s.bytes[i] = b
	}
}

// growString returns the string at Args[1], long enough for the bit at offset.
func (c *Ctx) growString(offset int64) (s *bitString, fault *Reply) {
	e, ok := c.write(TypeString)
	if !ok {
		return nil, &wrongType
	}
	s = &bitString{}
	if e != nil {
		s.old = e.str
	}
	length := int(offset>>3) + 1
	if length > len(s.old) {
		if fault := c.checkLength(0, int64(length)); fault != nil {
			return nil, fault
		}
	}
	s.length = max(length, len(s.old))
	return s, nil
}

// writeString writes the changed part of the string at Args[1].
func (c *Ctx) writeString(s *bitString) {
	from, to := s.length, 0
	if s.grown() {
		from, to = s.length-1, s.length // one byte is enough, because Patch fills the gap before it with zeros
	}
	for i := range s.bytes {
		from, to = min(from, i), max(to, i+1)
	}
	if from >= to {
		c.Reform(c.DB, c.Args[1], formRaw) // OBJECT ENCODING shows "raw", as after a change
		return
	}
	patch := make([]byte, to-from)
	copy(patch, s.old[min(from, len(s.old)):])
	for i, b := range s.bytes {
		patch[i-from] = b
	}
	c.Patch(c.DB, c.Args[1], int64(from), bytesToString(patch))
}

func cmdGetBit(c *Ctx) Reply {
	offset, fault := parseBitOffset(c.Args[2], 0)
	if fault != nil {
		return *fault
	}
	e, ok := c.read(TypeString)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	return Int(int64(bitAt(e.str, offset)))
}

// parseUnit parses the word BIT or BYTE.
func parseUnit(arg []byte) (inBits, ok bool) {
	inBits = equalFold(arg, "bit")
	return inBits, inBits || equalFold(arg, "byte")
}

// bitSpan converts two inclusive indexes of bits or bytes to a range of bits [from, to) in a string
// of n bytes.
func bitSpan(start, end, n int64, inBits bool) (from, to int64) {
	if inBits {
		n *= 8
	}
	if start < 0 {
		start = max(start+n, 0)
	}
	if end < 0 {
		end = max(end+n, 0)
	}
	if end = min(end, n-1); start > end {
		return 0, 0
	}
	if inBits {
		return start, end + 1
	}
	return 8 * start, 8 * (end + 1)
}

// cmdBitCount checks the range only if the string exists, as Redis does.
func cmdBitCount(c *Ctx) Reply {
	e, ok := c.read(TypeString)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Zero
	}
	from, to := int64(0), 8*int64(len(e.str))
	switch len(c.Args) {
	case 2:
	case 4, 5:
		start, end, fault := c.indexRange(2)
		if fault != nil {
			return *fault
		}
		if start < 0 && end < 0 && start > end {
			return Zero
		}
		inBits := false
		if len(c.Args) == 5 {
			if inBits, ok = parseUnit(c.Args[4]); !ok {
				return Err(ErrSyntax)
			}
		}
		from, to = bitSpan(start, end, int64(len(e.str)), inBits)
	default:
		return Err(ErrSyntax)
	}
	c.work(int(to-from) / (8 * 64))
	return Int(countBits(e.str, from, to))
}

func countBits(s string, from, to int64) int64 {
	n := int64(0)
	for ; from < to && from&7 != 0; from++ {
		n += int64(bitAt(s, from))
	}
	for ; to > from && to&7 != 0; to-- {
		n += int64(bitAt(s, to-1))
	}
	for i := from / 8; i < to/8; i++ {
		n += int64(bits.OnesCount8(s[i]))
	}
	return n
}

func cmdBitPos(c *Ctx) Reply {
	bit, ok := redistext.ParseInt(c.Args[2])
	switch {
	case !ok:
		return notInteger
	case bit != 0 && bit != 1:
		return badBitArg
	}
	e, ok := c.read(TypeString)
	switch {
	case !ok:
		return wrongType
	case e == nil:
		return Int(-bit)
	}
	n := int64(len(e.str))
	from, to, fault := c.bitPosSpan(n)
	if fault != nil {
		return *fault
	}
	if from >= to {
		return Int(-1)
	}
	c.work(int(to-from) / (8 * 64))
	i := findBit(e.str, byte(bit), from, to)
	switch {
	case i < to:
		return Int(i)
	case bit == 0 && len(c.Args) < 5:
		return Int(to) // if no end is given, the string counts as followed by zeros
	}
	return Int(-1)
}

// bitPosSpan parses the range of BITPOS in a string of n bytes.
func (c *Ctx) bitPosSpan(n int64) (from, to int64, fault *Reply) {
	if len(c.Args) == 3 {
		return 0, 8 * n, nil
	}
	if len(c.Args) > 6 {
		return 0, 0, &syntaxError
	}
	start, ok := redistext.ParseInt(c.Args[3])
	if !ok {
		return 0, 0, &notInteger
	}
	end, inBits := int64(-1), false
	if len(c.Args) == 6 {
		if inBits, ok = parseUnit(c.Args[5]); !ok {
			return 0, 0, &syntaxError
		}
	}
	if len(c.Args) > 4 {
		if end, ok = redistext.ParseInt(c.Args[4]); !ok {
			return 0, 0, &notInteger
		}
	}
	if n == 0 {
		return 0, 0, nil
	}
	from, to = bitSpan(start, end, n, inBits)
	return from, to, nil
}

// findBit returns the index of the first bit in the range that has the value bit, or the end of the range.
func findBit(s string, bit byte, from, to int64) int64 {
	none := -(1 - bit) // a byte in which no bit equals bit
	for from < to {
		if from&7 == 0 && to-from >= 8 && s[from>>3] == none {
			from += 8
		} else if bitAt(s, from) == bit {
			return from
		} else {
			from++
		}
	}
	return to
}

func cmdBitOp(c *Ctx) Reply {
	var op func(a, b byte) byte
	switch word := c.Args[1]; {
	case equalFold(word, "and"):
		op = func(a, b byte) byte { return a & b }
	case equalFold(word, "or"):
		op = func(a, b byte) byte { return a | b }
	case equalFold(word, "xor"):
		op = func(a, b byte) byte { return a ^ b }
	case !equalFold(word, "not"):
		return Err(ErrSyntax)
	case len(c.Args) != 4:
		return Err(ErrBitOpNot)
	}
	var sources []string
	longest := 0
	for _, key := range c.Args[3:] {
		c.work(keySteps)
		s := ""
		if e := c.Lookup(c.DB, key); e != nil {
			if e.typ != TypeString {
				return wrongType
			}
			s = e.str
		}
		sources = append(sources, s)
		longest = max(longest, len(s))
	}
	if longest == 0 {
		existed := c.discard(c.Args[2])
		c.stored(eventString, "set", c.Args[2], existed, true)
		return Zero
	}
	result := make([]byte, longest)
	copy(result, sources[0])
	for _, s := range sources[1:] {
		for i := range result {
			c.bitOpWork(i, longest)
			b := byte(0)
			if i < len(s) {
				b = s[i]
			}
			result[i] = op(result[i], b)
		}
	}
	if op == nil {
		for i := range result {
			c.bitOpWork(i, longest)
			result[i] = ^result[i]
		}
	}
	c.overwrite(c.Args[2], func() { c.SetString(c.DB, c.Args[2], bytesToString(result), 0) })
	c.Reform(c.DB, c.Args[2], formRaw)
	c.event(eventString, "set", c.Args[2])
	return Int(int64(longest))
}

// bitOpWork counts the work on a string of n bytes by blocks. The caller calls it for each index i.
func (c *Ctx) bitOpWork(i, n int) {
	if i%(64<<10) == 0 {
		c.work(min(n-i, 64<<10) / 64)
	}
}
