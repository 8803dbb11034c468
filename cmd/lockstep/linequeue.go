package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// queuedLines is how many bytes of lines may wait in a lineQueue.
	queuedLines = 1 << 20
	// lastWordsStall is how long a node that ends waits while no line can be written; lastWordsTime is how long any command waits in all.
	lastWordsStall = 250 * time.Millisecond
	lastWordsTime  = 2 * time.Second
)

// lineQueue is what a process writes to its standard error. Nobody who writes to the queue ever waits: a leader that hung in a write
// would go on with its heartbeats and serve nobody.
//
// If more than queuedLines bytes would wait, the queue leaves lines out until half of these bytes have been written.
type lineQueue struct {
	to    io.Writer
	more  chan struct{} // tells run that lines has a new line or over is set; has room for one signal
	moved chan struct{} // tells flush that run has written a line; has room for one signal
	stall time.Duration // how long flush waits while no line is written
	lost  atomic.Uint64 // number of lines that were left out, or could not be written, since the start

	mu      sync.Mutex
	lines   [][]byte // the lines that run has not taken yet
	size    int      // bytes of all lines that are not written yet
	skipped uint64   // number of lines that were left out after those in lines
	over    bool     // close has been called
	say     func(missing uint64) []byte

	failed uint64 // number of lines that run could not write, because of errors, since the last written one; only run uses it
}

// newLineQueue makes a queue of lines for a writer, and starts its goroutine, which close ends.
func newLineQueue(to io.Writer) *lineQueue {
	q := &lineQueue{to: to, more: make(chan struct{}, 1), moved: make(chan struct{}, 1), stall: lastWordsStall, say: func(missing uint64) []byte {
		return fmt.Appendf(nil, "lockstep: %d lines are missing here\n", missing)
	}}
	go q.run()
	return q
}

// nudge puts something into a channel that has room for one, unless something is there already.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Write queues one line, or leaves it out. It never fails and never waits.
func (q *lineQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	// Without the second condition, a slow reader would get a line about missing lines before every other line.
	if q.size > 0 && q.size+len(line) > queuedLines || q.skipped > 0 && q.size > queuedLines/2 {
		q.skipped++
		q.lost.Add(1)
		return len(line), nil
	}
	q.add(line)
	return len(line), nil
}

// last queues the line with which the process ends, however many lines wait.
func (q *lineQueue) last(line string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add([]byte(line))
}

// add queues one line. If lines were left out before it, add first queues a line that says how many. The caller holds mu.
func (q *lineQueue) add(line []byte) {
	if q.skipped > 0 {
		q.put(q.say(q.skipped))
		q.skipped = 0
	}
	q.put(bytes.Clone(line))
	nudge(q.more)
}

func (q *lineQueue) put(line []byte) {
	q.lines, q.size = append(q.lines, line), q.size+len(line)
}

// run writes the queued lines until close has been called and none is left.
func (q *lineQueue) run() {
	for {
		lines, over := q.take()
		for _, line := range lines {
			q.write(line)
		}
		if len(lines) > 0 {
			continue
		}
		if over {
			return
		}
		<-q.more
	}
}

// take takes all queued lines or, if there are none, a line that says how many were left out: the next Write may be late.
func (q *lineQueue) take() (lines [][]byte, over bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.lines) == 0 && q.skipped > 0 {
		q.put(q.say(q.skipped))
		q.skipped = 0
	}
	lines, q.lines = q.lines, nil
	return lines, q.over
}

// write writes one line. If that fails, the line is lost, and the number of lost lines comes before the next one.
func (q *lineQueue) write(line []byte) {
	var err error
	if q.failed > 0 {
		_, err = q.to.Write(q.saying(q.failed))
	}
	if err == nil {
		q.failed = 0
		_, err = q.to.Write(line)
	}
	if err != nil {
		q.failed++
		q.lost.Add(1)
	}
	q.mu.Lock()
	q.size -= len(line)
	q.mu.Unlock()
	nudge(q.moved)
}

func (q *lineQueue) saying(missing uint64) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.say(missing)
}

// sayBy gives the line about missing lines the format of the others. loggerTo makes the logger for a writer.
func (q *lineQueue) sayBy(loggerTo func(io.Writer) (*slog.Logger, error)) error {
	var b bytes.Buffer
	log, err := loggerTo(&b)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.say = func(missing uint64) []byte {
		b.Reset()
		// At a lower level, --log-level error would hide the line.
		log.Error("lines of the log are missing here: nobody read the log in time, or it could not be written", "lines", missing)
		return bytes.Clone(b.Bytes())
	}
	return nil
}

// flush waits until all lines are written. It gives up when no line has been written for the time stall, and after lastWordsTime.
func (q *lineQueue) flush() {
	timeout := time.After(lastWordsTime)
	for !q.written() {
		select {
		case <-q.moved:
		case <-time.After(q.stall):
			return
		case <-timeout:
			return
		}
	}
}

func (q *lineQueue) written() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size == 0 && q.skipped == 0
}

// close ends the goroutine of the queue when all lines are written, and waits for that as flush does.
func (q *lineQueue) close() {
	q.flush()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.over = true
	nudge(q.more)
}
