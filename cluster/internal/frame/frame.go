// Package frame reads and writes the frames of the protocols of the peer port:
//
//	length of the rest (uint32, big endian) | kind (1 byte) | id (uvarint) | body
package frame

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"

	"github.com/lockstep-io/lockstep/cluster/brake"
)

const (
	// MaxLength bounds the bytes of a frame, which may hold a few arguments of the largest size.
	MaxLength = 1 << 30
	// MaxShort bounds the frames that carry the status of a node (package peers) or a request to join.
	MaxShort = 1 << 16
)

// ErrMalformed is the error for bytes that are no frame, or a frame whose fields cannot be read.
var ErrMalformed = errors.New("cluster: malformed frame from a peer")

// Begin appends the head of a frame. End has to fill in its length.
func Begin(buf []byte, kind byte, id uint64) []byte {
	buf = append(buf, 0, 0, 0, 0, kind)
	return binary.AppendUvarint(buf, id)
}

// End fills in the length of the frame that begins at start.
func End(buf []byte, start int) []byte {
	binary.BigEndian.PutUint32(buf[start:], lengthField(len(buf)-start-4))
	return buf
}

// lengthField returns the length field for n. If n does not fit, that is the highest value, which every reader refuses.
func lengthField(n int) uint32 { return uint32(min(n, math.MaxUint32)) }

// Frame is a received frame. No other frame shares the memory of Body.
type Frame struct {
	Kind byte
	ID   uint64
	Body []byte
}

// Read reads a frame.
func Read(r *bufio.Reader) (Frame, error) { return readUpTo(r, MaxLength) }

// ReadShort reads a frame of a kind that is never longer than MaxShort.
func ReadShort(r *bufio.Reader) (Frame, error) { return readUpTo(r, MaxShort) }

// readUpTo reads a frame of a bounded length.
func readUpTo(r *bufio.Reader, most uint32) (Frame, error) {
	n, err := ReadLength(r, most)
	if err != nil {
		return Frame{}, err
	}
	return ReadRest(r, n)
}

// ReadLength reads the length of a frame, and returns ErrMalformed if it is more than the parameter most.
func ReadLength(r *bufio.Reader, most uint32) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < 2 || n > most {
		return 0, ErrMalformed
	}
	return int(n), nil
}

// ReadRest reads the rest of a frame, after its length field. The value of that field is n.
func ReadRest(r *bufio.Reader, n int) (Frame, error) {
	b, err := ReadBody(r, n)
	if err != nil {
		return Frame{}, err
	}
	id, size := binary.Uvarint(b[1:])
	if size <= 0 {
		return Frame{}, ErrMalformed
	}
	return Frame{Kind: b[0], ID: id, Body: b[1+size:]}, nil
}

// ReadBody reads n bytes. It allocates memory as the bytes arrive, not as announced.
func ReadBody(r io.Reader, n int) ([]byte, error) {
	const step, usual = 1 << 20, 16 << 20
	brake.Bring(n)
	b := make([]byte, 0, min(n, step))
	for len(b) < n {
		more := min(n-len(b), max(len(b), step))
		if len(b) > 0 {
			more = min(n-len(b), max(len(b), usual))
		}
		b = slices.Grow(b, more)
		if _, err := io.ReadFull(r, b[len(b):len(b)+more]); err != nil {
			return nil, err
		}
		b = b[:len(b)+more]
	}
	return b, nil
}
