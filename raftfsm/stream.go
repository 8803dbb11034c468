package raftfsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// ErrNewer is the error for an entry or snapshot in a format that only a later version of this
// program knows.
var ErrNewer = errors.New("raftfsm: written by a newer version of lockstep")

// versionError is an ErrNewer with instructions for the operator. It is also an ErrCorrupt, because
// this program cannot use the data.
type versionError struct {
	what       string
	has, knows byte
}

func (e versionError) Error() string {
	return fmt.Sprintf("%s version %d, this program knows %d: its data is intact; upgrade this node's program and start it again", e.what, e.has, e.knows)
}

func (versionError) Is(target error) bool { return target == ErrNewer || target == ErrCorrupt }

// sumSize is the length, in bytes, of the checksum at the end of a snapshot.
const sumSize = 4

// sealed reads a snapshot or a backup up to the checksum at its end, and sums what it returns. It buffers only a small part.
type sealed struct {
	in   io.Reader
	sum  hash.Hash
	buf  []byte
	r, w int // buf[r:w] are the bytes that were read and not yet returned
	err  error
}

func newSealed(in io.Reader, sum hash.Hash) *sealed {
	return &sealed{in: in, sum: sum, buf: make([]byte, 1<<16)}
}

// Read returns only bytes that cannot belong to the checksum.
func (s *sealed) Read(p []byte) (int, error) {
	size := s.sum.Size()
	for s.w-s.r <= size {
		if s.err != nil {
			return 0, s.err
		}
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
		var n int
		n, s.err = s.in.Read(s.buf[s.w:])
		s.w += n
	}
	n := copy(p, s.buf[s.r:s.w-size])
	s.sum.Write(p[:n])
	s.r += n
	return n, nil
}

// rest returns the checksum at the end of the input; nil if the input is cut short. Everything before the checksum must have been read.
func (s *sealed) rest() ([]byte, error) {
	switch {
	case s.err != nil && s.err != io.EOF:
		return nil, s.err
	case s.err == nil || s.w-s.r != s.sum.Size():
		return nil, nil
	}
	return s.buf[s.r:s.w], nil
}

// checkSnapshot returns an error if the checksum of a snapshot is wrong.
func (s *sealed) checkSnapshot() error {
	switch sum, err := s.rest(); {
	case err != nil:
		return err
	case sum == nil:
		return fmt.Errorf("%w: snapshot is cut short", ErrCorrupt)
	case s.sum.(hash.Hash32).Sum32() != binary.LittleEndian.Uint32(sum):
		return fmt.Errorf("%w: snapshot checksum does not match", ErrCorrupt)
	}
	return nil
}

// Checker receives the bytes of a snapshot in pieces and checks whether it is complete and undamaged,
// without building a state.
type Checker struct {
	head []byte      // the magic and the version, as far as they were received
	tail []byte      // the last sumSize bytes received, which may be the checksum
	sum  hash.Hash32 // the checksum of all bytes before tail
}

// NewChecker returns a Checker that has received no bytes.
func NewChecker() *Checker { return &Checker{sum: crc32.New(castagnoli)} }

// Write receives the next bytes; it never fails.
func (c *Checker) Write(p []byte) (int, error) {
	if missing := len(snapshotMagic) + 1 - len(c.head); missing > 0 {
		c.head = append(c.head, p[:min(missing, len(p))]...)
	}
	// A byte that is no longer among the last four cannot belong to the checksum.
	over := len(c.tail) + len(p) - sumSize
	if old := min(over, len(c.tail)); old > 0 {
		c.sum.Write(c.tail[:old])
		c.tail = append(c.tail[:0], c.tail[old:]...)
	}
	fresh := max(len(p)-sumSize, 0)
	c.sum.Write(p[:fresh])
	c.tail = append(c.tail, p[fresh:]...)
	return len(p), nil
}

// Check returns nil if the received bytes are a whole snapshot with the right checksum, of a version that this program knows.
func (c *Checker) Check() error {
	if len(c.tail) < sumSize || c.sum.Sum32() != binary.LittleEndian.Uint32(c.tail) {
		return fmt.Errorf("%w: snapshot checksum does not match", ErrCorrupt)
	}
	return checkHead(c.head)
}

// checkHead checks the magic and the version. Every version begins with both and ends with a
// checksum of everything before.
func checkHead(head []byte) error {
	if len(head) <= len(snapshotMagic) || string(head[:len(snapshotMagic)]) != snapshotMagic {
		return fmt.Errorf("%w: not a lockstep snapshot", ErrCorrupt)
	}
	switch v := head[len(snapshotMagic)]; {
	case v == 0:
		return fmt.Errorf("%w: snapshot version 0", ErrCorrupt)
	case v > snapshotVersion:
		return versionError{"snapshot", v, snapshotVersion}
	}
	return nil
}
