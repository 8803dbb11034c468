package datadir

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft-wal/types"
)

// leanFiler makes segments that close their writer when they are full. raft-wal would keep each writer, with a buffer for its longest
// write.
type leanFiler struct{ types.SegmentFiler }

// Create implements types.SegmentFiler.
func (f leanFiler) Create(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := f.SegmentFiler.Create(info)
	return f.lean(info, w), err
}

// RecoverTail implements types.SegmentFiler.
func (f leanFiler) RecoverTail(info types.SegmentInfo) (types.SegmentWriter, error) {
	w, err := f.SegmentFiler.RecoverTail(info)
	return f.lean(info, w), err
}

func (f leanFiler) lean(info types.SegmentInfo, w types.SegmentWriter) types.SegmentWriter {
	if w == nil {
		return nil
	}
	return &leanSegment{filer: f.SegmentFiler, info: info, writer: w}
}

// leanSegment is a segment that is read through its writer until it is full, and then from its file.
type leanSegment struct {
	filer types.SegmentFiler
	info  types.SegmentInfo
	last  atomic.Uint64 // index of the last entry; 0 until the method full replaces the writer

	mu     sync.RWMutex
	writer types.SegmentWriter // nil when the segment is full and a reader has replaced the writer …
	reader types.SegmentReader // … which is this one; nil before
}

var _ types.SegmentWriter = (*leanSegment)(nil)

// Append implements types.SegmentWriter.
func (s *leanSegment) Append(entries []types.LogEntry) error {
	if s.writer == nil { // only the goroutine that appends changes s.writer, so it reads s.writer without mu
		return types.ErrSealed
	}
	return s.writer.Append(entries)
}

// Sealed implements types.SegmentWriter.
func (s *leanSegment) Sealed() (sealed bool, indexStart uint64, err error) {
	if s.writer == nil {
		return true, s.info.IndexStart, nil
	}
	if sealed, indexStart, err = s.writer.Sealed(); err == nil && sealed {
		err = s.full(indexStart)
	}
	return sealed, indexStart, err
}

// ForceSeal implements types.SegmentWriter.
func (s *leanSegment) ForceSeal() (indexStart uint64, err error) {
	if s.writer == nil {
		return s.info.IndexStart, nil
	}
	if indexStart, err = s.writer.ForceSeal(); err == nil {
		err = s.full(indexStart)
	}
	return indexStart, err
}

// full replaces the writer of a full segment by a reader of the file, unless the file cannot be opened.
func (s *leanSegment) full(indexStart uint64) error {
	info := s.info
	info.IndexStart, info.MaxIndex, info.SealTime = indexStart, s.writer.LastIndex(), time.Unix(0, 0)
	reader, err := s.filer.Open(info)
	if err != nil {
		return nil
	}
	s.last.Store(info.MaxIndex)
	s.mu.Lock()
	defer s.mu.Unlock()
	writer := s.writer
	s.info, s.reader, s.writer = info, reader, nil
	return writer.Close()
}

// LastIndex implements types.SegmentWriter.
func (s *leanSegment) LastIndex() uint64 {
	if last := s.last.Load(); last > 0 {
		return last
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.writer == nil {
		return s.last.Load()
	}
	return s.writer.LastIndex()
}

// GetLog implements types.SegmentReader.
func (s *leanSegment) GetLog(index uint64) (*types.PooledBuffer, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.reader != nil {
		return s.reader.GetLog(index)
	}
	return s.writer.GetLog(index)
}

// Close implements io.Closer.
func (s *leanSegment) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	if s.writer != nil {
		errs = append(errs, s.writer.Close())
	}
	if s.reader != nil {
		errs = append(errs, s.reader.Close())
	}
	return errors.Join(errs...)
}
