package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipe takes the place of the standard error. Its reader may be stuck or slow, and writes to it may fail.
type pipe struct {
	mu    sync.Mutex
	reads sync.Cond
	stuck bool
	slow  time.Duration // how long each line takes
	fault error
	got   bytes.Buffer
}

func newPipe() *pipe {
	p := &pipe{}
	p.reads.L = &p.mu
	return p
}

func (p *pipe) Write(b []byte) (int, error) {
	time.Sleep(p.slow)
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.stuck {
		p.reads.Wait()
	}
	if p.fault != nil {
		return 0, p.fault
	}
	return p.got.Write(b)
}

func (p *pipe) set(stuck bool, fault error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck, p.fault = stuck, fault
	p.reads.Broadcast()
}

// lines returns what the reader has got.
func (p *pipe) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Split(strings.TrimSuffix(p.got.String(), "\n"), "\n")
}

// A goroutine that logs never waits for the reader of the log. One line says how many lines are missing.
func TestNobodyWaitsForTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		p.set(true, nil)
		q := newLineQueue(p)
		defer q.close()
		log, err := (&options{logLevel: "error", logFormat: "json"}).logger(q)
		if err := errors.Join(err, q.sayBy((&options{logLevel: "error", logFormat: "json"}).logger)); err != nil {
			t.Fatal(err)
		}
		const all = 2000
		text := strings.Repeat("x", 1000)
		for i := range all {
			log.Error(fmt.Sprintf("line %d", i), "text", text)
		}
		if q.size > queuedLines+2000 {
			t.Errorf("%d bytes wait", q.size)
		}
		lost := q.lost.Load()
		if lost == 0 || lost >= all {
			t.Fatalf("%d lines are lost", lost)
		}
		p.set(false, nil)
		synctest.Wait()
		log.Error("at last")
		synctest.Wait()
		got := p.lines()
		if want := all - int(lost) + 2; len(got) != want {
			t.Fatalf("%d lines, want %d", len(got), want)
		}
		for i, line := range got[:len(got)-2] {
			if !strings.Contains(line, fmt.Sprintf(`"line %d"`, i)) {
				t.Fatalf("line %d is %.100s", i, line)
			}
		}
		if note := got[len(got)-2]; !strings.Contains(note, fmt.Sprintf(`"lines":%d}`, lost)) || !strings.HasPrefix(note, "{") {
			t.Errorf("the missing lines: %s", note)
		}
		if end := got[len(got)-1]; !strings.Contains(end, "at last") {
			t.Errorf("the last line: %s", end)
		}
	})
}

// When the queue has left lines out, it takes none until half of its bytes are free. One line replaces the missing ones.
func TestLinesAreMissingWhereTheLogSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		p.slow = time.Second
		q := newLineQueue(p)
		text, n := strings.Repeat("x", 10000), 0
		for range 1000 { // faster than the reader
			fmt.Fprintln(q, n, text)
			n++
			time.Sleep(200 * time.Millisecond)
		}
		for !q.written() {
			time.Sleep(time.Second)
		}
		q.close()
		next, notes := 0, 0
		for _, line := range p.lines() {
			var missing int
			if _, err := fmt.Sscanf(line, "lockstep: %d lines are missing here", &missing); err == nil {
				next += missing
				notes++
				continue
			}
			if !strings.HasPrefix(line, fmt.Sprint(next, " ")) {
				t.Fatalf("%.20s where line %d should be", line, next)
			}
			next++
		}
		if next != n || notes < 2 || notes > 50 {
			t.Errorf("%d lines of %d, and %d times some that are missing", next, n, notes)
		}
	})
}

// Lines that a full disk refuses are counted. The count stands before the first line that the disk takes again.
func TestLogThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		p.set(false, errors.New("no space left on device"))
		q := newLineQueue(p)
		for i := range 3 {
			fmt.Fprintln(q, "lost", i)
		}
		synctest.Wait()
		p.set(false, nil)
		fmt.Fprintln(q, "written")
		fmt.Fprintln(q, "so is this")
		q.close()
		if got := p.lines(); len(got) != 3 || got[0] != "lockstep: 3 lines are missing here" || got[1] != "written" || q.lost.Load() != 3 {
			t.Errorf("%q, %d lost", got, q.lost.Load())
		}
	})
}

// A process that ends writes all lines that are left, for lastWordsTime at most, or lastWordsStall if nobody reads.
func TestEndOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		p.slow = lastWordsStall / 2
		q := newLineQueue(p)
		for i := range 10 {
			fmt.Fprintln(q, "line", i)
		}
		q.last("the end\n")
		q.close()
		if got := p.lines(); len(got) != 11 || got[10] != "the end" {
			t.Errorf("%q", got)
		}

		p = newPipe()
		p.set(true, nil)
		q = newLineQueue(p)
		for range 2 * queuedLines / 100 {
			fmt.Fprintln(q, strings.Repeat("x", 99))
		}
		begin := time.Now()
		q.last("to nobody\n")
		q.close()
		if took := time.Since(begin); took > lastWordsStall {
			t.Errorf("it waited for %v", took)
		}
		p.set(false, nil)
		synctest.Wait()
		if got := p.lines(); got[len(got)-1] != "to nobody" {
			t.Errorf("the last line is %.100s", got[len(got)-1])
		}

		p = newPipe()
		p.slow = lastWordsStall / 2
		q = newLineQueue(p)
		for range 1000 {
			fmt.Fprintln(q, "many")
		}
		begin = time.Now()
		q.close()
		if took := time.Since(begin); took > lastWordsTime {
			t.Errorf("it waited for %v", took)
		}
		for !q.written() {
			time.Sleep(time.Second)
		}
	})
}

// The lines have the same bytes as those of a logger without a queue.
func TestQueuedLinesAreTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, format := range []string{"text", "json"} {
			o := &options{logLevel: "debug", logFormat: format}
			var direct bytes.Buffer
			p := newPipe()
			q := newLineQueue(p)
			for _, w := range []io.Writer{&direct, q} {
				log, err := o.logger(w)
				if err != nil {
					t.Fatal(err)
				}
				for i := range 5 {
					log.Log(t.Context(), slog.Level(4*(i-1)), "a line", "of", i)
				}
			}
			q.close()
			if got := p.got.String(); got != direct.String() || len(regexp.MustCompile("a line").FindAllString(got, -1)) != 5 {
				t.Errorf("%s\n%s", got, direct.String())
			}
		}
	})
}

// TestMessageOfASlowCommand: a command that fails writes its message although the machine is busy.
func TestMessageOfASlowCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe()
		p.slow = 4 * lastWordsStall
		if code := run([]string{"add", "n4"}, io.Discard, p); code != exitUsage || len(p.lines()) != 2 {
			t.Errorf("exit code %d, and %q", code, p.lines())
		}
	})
}
