// Package packed has the packed forms of Redis's dump format: LZF for long strings, and listpacks for short collections.
package packed

// LZF, the compression of long strings in Redis's dump format. Compressed data
// is a sequence of runs:
//
//	+----------+---------------------------------------------------------+
//	| 000nnnnn | n+1 literal bytes follow                                |
//	| lllooooo | if l is 7, a byte follows that is added to l; then a    |
//	|          | byte b follows; copy l+2 bytes from (o<<8|b)+1 back     |
//	+----------+---------------------------------------------------------+
//
// The compressor searches for matches as Redis does, so its results are identical to Redis's.
const (
	lzfHashBits   = 16
	lzfMaxOffset  = 1 << 13
	MaxMatch      = 1<<8 + 1<<3
	lzfMaxLiteral = 1 << 5
)

func lzfHash(b []byte) uint32 {
	h := uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2])
	return (h>>(24-lzfHashBits) - 5*h) & (1<<lzfHashBits - 1)
}

// lzfWriter writes runs. It reserves a byte for the length of a run before the run's literals.
type lzfWriter struct {
	out      []byte
	literals int
}

func (w *lzfWriter) literal(c byte) {
	w.out = append(w.out, c)
	if w.literals++; w.literals == lzfMaxLiteral {
		w.endRun()
		w.beginRun()
	}
}

func (w *lzfWriter) beginRun() {
	w.out = append(w.out, 0)
	w.literals = 0
}

func (w *lzfWriter) endRun() {
	at := len(w.out) - w.literals - 1
	if w.literals == 0 {
		w.out = w.out[:at]
	} else {
		w.out[at] = byte(w.literals - 1)
	}
}

// copy writes a match of the given length, which begins offset+1 bytes back.
func (w *lzfWriter) copy(offset, length int) {
	w.endRun()
	if l := length - 2; l < 7 {
		w.out = append(w.out, byte(offset>>8+l<<5))
	} else {
		w.out = append(w.out, byte(offset>>8+7<<5), byte(l-7))
	}
	w.out = append(w.out, byte(offset))
	w.beginRun()
}

// lzfMatch returns how many bytes at the start of ref and in are equal; the first three must be. The result may exceed its limit, MaxMatch
// or len(in)-2, because sixteen bytes are compared without a check, as in Redis.
func lzfMatch(ref, in []byte) int {
	longest := min(len(in)-2, MaxMatch)
	length := 3
	if longest > 16 {
		for ; length < 19; length++ {
			if ref[length] != in[length] {
				return length
			}
		}
	}
	for length < longest && ref[length] == in[length] {
		length++
	}
	return length
}

// Table maps the hash of three bytes to the last index at which Compress has recorded bytes with this hash; 0 means none.
type Table [1 << lzfHashBits]int32

// Compress compresses in. ok is false if the result would exceed most or len(in)-4 bytes, and, as in Redis, sometimes if it just fits.
func Compress(in []byte, table *Table, most int) ([]byte, bool) {
	*table = Table{}
	limit := min(len(in)-4, most)
	w := lzfWriter{out: make([]byte, 0, min(len(in), most)+8)}
	w.beginRun()
	i := 0
	for i < len(in)-2 {
		slot := &table[lzfHash(in[i:])]
		ref := int(*slot)
		*slot = int32(i)
		offset := i - ref - 1
		if ref == 0 || offset >= lzfMaxOffset || in[ref] != in[i] || in[ref+1] != in[i+1] || in[ref+2] != in[i+2] {
			if len(w.out) >= limit {
				return nil, false
			}
			w.literal(in[i])
			i++
			continue
		}
		if full := len(w.out) + 4; full >= limit && (w.literals > 0 || full-1 >= limit) {
			return nil, false
		}
		length := lzfMatch(in[ref:], in[i:])
		w.copy(offset, length)
		i += length
		if i >= len(in)-2 {
			break
		}
		// As in Redis, only the last two positions inside the match go into the table.
		table[lzfHash(in[i-2:])] = int32(i - 2)
		table[lzfHash(in[i-1:])] = int32(i - 1)
	}
	if len(w.out)+3 > limit {
		return nil, false
	}
	for ; i < len(in); i++ {
		w.literal(in[i])
	}
	w.endRun()
	return w.out, true
}

// Expand is the inverse of Compress. ok is false if the data is corrupt or does not expand to size bytes.
func Expand(in []byte, size int) (out []byte, ok bool) {
	out = make([]byte, 0, size)
	for len(in) > 0 {
		c := int(in[0])
		in = in[1:]
		if c < lzfMaxLiteral {
			if c++; c > len(in) || len(out)+c > size {
				return nil, false
			}
			out = append(out, in[:c]...)
			in = in[c:]
			continue
		}
		length, rest := c>>5, in
		if length == 7 && len(rest) > 0 {
			length += int(rest[0])
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return nil, false
		}
		from := len(out) - (c&31)<<8 - int(rest[0]) - 1
		in = rest[1:]
		if length += 2; from < 0 || len(out)+length > size {
			return nil, false
		}
		for range length { // byte by byte: the source may overlap the result
			out = append(out, out[from])
			from++
		}
	}
	return out, len(out) == size
}
