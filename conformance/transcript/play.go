package transcript

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Target is a server under test. When a file begins, the server must be empty, or the player must be allowed to empty it.
type Target interface {
	// Dial opens a new client connection.
	Dial() (net.Conn, error)
	// Advance lets the time d pass on the server's clock: it sleeps, or moves a clock of the test.
	Advance(d time.Duration)
}

// Configurable is a Target that can start a server with settings (names and values of redis.conf). The returned function stops it.
type Configurable interface {
	With(settings [][2]string) (Target, func(), error)
}

// ErrNotConfigurable is the error for a file with @server lines on a Target that is not Configurable.
var ErrNotConfigurable = errors.New("the file needs a server with settings of its own, which this target cannot start")

const (
	// quiet is how long a recording waits for one more reply to raw bytes.
	quiet = 250 * time.Millisecond
	// A command with @until is sent again after every untilPause, but not later than untilMost after it was first sent.
	untilPause = 10 * time.Millisecond
	untilMost  = 10 * time.Second
	// firstConn is the name of the connection on which a file begins.
	firstConn = "main"
)

// Mismatch is a reply that differs from the golden one.
type Mismatch struct {
	File      string
	Line      int
	Source    string
	Want, Got []string
}

func (m Mismatch) String() string {
	return fmt.Sprintf("%s:%d: %s\n want: %s\n  got: %s", m.File, m.Line, m.Source,
		strings.Join(m.Want, "\n       "), strings.Join(m.Got, "\n       "))
}

// Check plays the file and returns the replies that differ from its golden ones, even with an error.
func Check(f *File, t Target) ([]Mismatch, error) {
	var diffs []Mismatch
	err := play(f, t, false, func(s *Step, got []string) {
		if strings.Join(s.Reply, "\n") != strings.Join(got, "\n") {
			diffs = append(diffs, Mismatch{f.Name, s.Line, s.Source, s.Reply, got})
		}
	})
	return diffs, err
}

// Record plays the file and replaces its golden replies by the target's replies.
func Record(f *File, t Target) error {
	return play(f, t, true, func(s *Step, got []string) { s.Reply = got })
}

// TB is the part of testing.TB that Run needs.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Run plays the file. It reports a test failure for every reply that differs from the golden one.
func Run(t TB, f *File, target Target) {
	t.Helper()
	diffs, err := Check(f, target)
	for _, d := range diffs {
		t.Errorf("%s", d)
	}
	switch {
	case errors.Is(err, ErrNotConfigurable):
		t.Skipf("%v", err)
	case err != nil:
		t.Errorf("%v", err)
	}
}

// player is the state of a file that is being played.
type player struct {
	target    Target
	recording bool
	control   *wire // for the player's own questions, never for a step
	conns     map[string]*wire
	order     []string // names of conns, oldest first
	cur       *wire
}

// play runs every step and calls the function see with each reply.
func play(f *File, t Target, recording bool, see func(*Step, []string)) error {
	if len(f.Server) > 0 {
		c, ok := t.(Configurable)
		if !ok {
			return fmt.Errorf("%s: %w", f.Name, ErrNotConfigurable)
		}
		own, stop, err := c.With(f.Server)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		defer stop()
		t = own
	}
	p := &player{target: t, recording: recording, conns: map[string]*wire{}}
	defer p.close()
	if err := p.start(); err != nil {
		return fmt.Errorf("%s: start: %w", f.Name, err)
	}
	for i := range f.Steps {
		s := &f.Steps[i]
		got, err := p.step(s)
		if err != nil {
			return fmt.Errorf("%s:%d: %s: %w", f.Name, s.Line, s.Source, err)
		}
		if s.Kind.Replies() {
			see(s, got)
		}
	}
	if err := p.finish(); err != nil {
		return fmt.Errorf("%s: end: %w", f.Name, err)
	}
	return nil
}

// start empties the server and opens the first connection.
func (p *player) start() error {
	conn, err := p.target.Dial()
	if err != nil {
		return err
	}
	p.control = newWire(conn)
	for _, cmd := range [][]string{{"FLUSHALL"}, {"SCRIPT", "FLUSH"}, {"FUNCTION", "FLUSH"}} {
		v, err := p.control.ask(cmd...)
		if err != nil {
			return err
		}
		if v.Type == '-' {
			return fmt.Errorf("%s: %s", cmd[0], v.Text)
		}
	}
	return p.use(firstConn)
}

// use makes the named connection the current one. It dials a connection whose name is new.
func (p *player) use(name string) error {
	w, ok := p.conns[name]
	if !ok {
		conn, err := p.target.Dial()
		if err != nil {
			return err
		}
		w = newWire(conn)
		p.conns[name] = w
		p.order = append(p.order, name)
	}
	p.cur = w
	return nil
}

// finish sends RESET on every connection. RESET ends subscriptions, and its reply reveals a reply that is left over.
func (p *player) finish() error {
	for _, name := range p.order {
		w := p.conns[name]
		if w.closed {
			continue
		}
		v, err := w.ask("RESET")
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("connection %s was closed, and no step says so", name)
		}
		if err != nil {
			return fmt.Errorf("connection %s: RESET: %w", name, err)
		}
		if v.Type != '+' || v.Text != "RESET" {
			return fmt.Errorf("connection %s has a reply that no step asked for: %s", name, strings.Join(v.Lines(), " "))
		}
	}
	return nil
}

func (p *player) close() {
	for _, w := range p.conns {
		w.shut()
	}
	if p.control != nil {
		p.control.shut()
	}
}

// step does what a line says and returns the rendered reply.
func (p *player) step(s *Step) ([]string, error) {
	switch s.Kind {
	case Command, Hello:
		args, err := p.expandAll(s.Args)
		if err != nil {
			return nil, err
		}
		for sent := time.Now(); ; time.Sleep(untilPause) {
			if err := p.cur.send(AppendCommand(nil, args...)); err != nil || s.Mods.NoReply {
				return nil, err
			}
			first, lines, err := p.one(s)
			switch {
			case err != nil || strings.HasPrefix(first, s.Mods.Until):
				return lines, err
			case time.Since(sent) > untilMost:
				return lines, fmt.Errorf("no reply began with %s within %v; the last one began with %s", s.Mods.Until, untilMost, first)
			}
		}
	case Raw:
		if err := p.cur.send(s.Bytes); err != nil || s.Mods.NoReply {
			return nil, err
		}
		return p.some(s)
	case Push:
		_, lines, err := p.one(s)
		return lines, err
	case Conn:
		return nil, p.use(s.Args[0])
	case Advance:
		p.target.Advance(s.Wait)
	case Sleep:
		time.Sleep(s.Wait)
	}
	return nil, nil
}

// one reads a single value, or the end of the connection. It returns the first line as it was sent, and the lines that s compares.
func (p *player) one(s *Step) (first string, lines []string, err error) {
	v, err := p.cur.read()
	if errors.Is(err, io.EOF) {
		return closed, []string{closed}, nil
	}
	if err != nil {
		return "", nil, err
	}
	lines = s.lines(v)
	for _, l := range lines {
		if !isReply(l) {
			return "", nil, fmt.Errorf("@sub yields a line that would not be read back as a reply: %q", l)
		}
	}
	return v.Lines()[0], lines, nil
}

// some reads as many replies as the golden reply has or, when it records, all until none comes for a while.
func (p *player) some(s *Step) ([]string, error) {
	var out []string
	for n := topLevel(s.Reply); p.recording || n > 0; n-- {
		if p.recording && !p.cur.pending(quiet) {
			return out, nil
		}
		_, lines, err := p.one(s)
		if err != nil {
			return out, err
		}
		out = append(out, lines...)
		if p.cur.closed {
			return out, nil
		}
	}
	return out, nil
}

// topLevel counts the values in a rendered reply. The end of the connection counts as one.
func topLevel(lines []string) int {
	n := 0
	for _, l := range lines {
		if !strings.HasPrefix(l, " ") {
			n++
		}
	}
	return n
}
