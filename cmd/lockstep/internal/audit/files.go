package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/lockstep-io/lockstep/server/history"
)

const (
	namePattern  = "locks-%08d.jsonl"
	positionName = "position"
	lockName     = "LOCK"
	// maxLine is the length of the longest line. An event has names of 1 KB at most, whose bytes JSON may show as six.
	maxLine = 64 << 10
)

// file is a file of events.
type file struct {
	path   string
	number int
	size   int64
}

// list returns the files of a directory, the oldest first.
func list(dir string) (files []file, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), namePattern, &n); err != nil || e.Name() != fmt.Sprintf(namePattern, n) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, os.ErrNotExist) {
			continue // the node has just deleted it
		}
		if err != nil {
			return nil, err
		}
		files = append(files, file{filepath.Join(dir, e.Name()), n, info.Size()})
	}
	slices.SortFunc(files, func(a, b file) int { return a.number - b.number })
	return files, nil
}

// reader reads events, line by line.
type reader struct {
	lines *bufio.Reader
	name  string
	line  int
	read  int64 // bytes of the complete lines
}

func newReader(in io.Reader, name string) *reader {
	return &reader{lines: bufio.NewReaderSize(in, maxLine), name: name}
}

// errTorn means that a file ends within a line: the process ended while it wrote.
var errTorn = errors.New("the last line is not complete")

// next returns the next event, io.EOF after the last one, or errTorn.
func (r *reader) next() (e history.Event, err error) {
	text, err := r.lines.ReadSlice('\n')
	r.line++
	switch {
	case err == io.EOF && len(text) == 0:
		return e, io.EOF
	case err == io.EOF:
		return e, errTorn
	case err != nil:
		return e, fmt.Errorf("%s:%d: %w", r.name, r.line, err)
	}
	if e, err = history.ParseJSON(bytes.TrimSuffix(text, []byte("\n"))); err != nil {
		return e, fmt.Errorf("%s:%d: %w", r.name, r.line, err)
	}
	r.read += int64(len(text))
	return e, nil
}
