package clustertest

import (
	"bytes"
	"math/rand/v2"
	"os"
	"strconv"
)

// Garble returns a copy with some bytes changed, inserted or removed, but not the first, which may name the protocol.
func Garble(rng *rand.Rand, b []byte) []byte {
	b = bytes.Clone(b)
	for range 1 + rng.IntN(4) {
		if len(b) < 3 {
			return b
		}
		at := 1 + rng.IntN(len(b)-1)
		switch rng.IntN(6) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.IntN(256))
		case 2: // makes a uvarint that does not end, or a very large number
			b = append(b[:at:at], append(bytes.Repeat([]byte{0xff}, 1+rng.IntN(9)), b[at:]...)...)
		case 3:
			b = b[:at]
		case 4:
			b = append(b[:at:at], append([]byte{0}, b[at:]...)...)
		case 5:
			if n := rng.IntN(len(b) - at); n > 0 {
				b = append(b[:at:at], b[at+n:]...)
			}
		}
	}
	return b
}

// Number returns the number in the environment variable name. If the variable has no number, it returns the parameter otherwise.
func Number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}
