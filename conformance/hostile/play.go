package hostile

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/conformance/hostile/scripts"
	"github.com/lockstep-io/lockstep/conformance/transcript"
)

const (
	dialLimit  = 3 * time.Second
	writeLimit = 2 * time.Second
	// replyLimit is how long an attacker waits for one answer.
	replyLimit = 6 * time.Second
	// silence is how long an attacker waits for more bytes before it takes the answer as complete.
	silence = 150 * time.Millisecond
)

// tally counts what has been played.
type tally struct {
	inputs, scripts, compared, again, much, unsteady, models, frames, connections, refused, sent, received atomic.Int64
}

// play sends an input and returns when its connections are closed. A node may refuse an attacker, close the connection, or not
// answer.
func (f *fleet) play(in input) {
	f.tally.inputs.Add(1)
	var wg sync.WaitGroup
	for range max(in.times, 1) {
		wg.Go(func() { f.session(in) })
	}
	wg.Wait()
}

func (f *fleet) session(in input) {
	conn, err := net.DialTimeout("tcp", f.addr(in.node, in.door), dialLimit)
	if err != nil {
		f.tally.refused.Add(1)
		return
	}
	defer conn.Close()
	f.tally.connections.Add(1)
	if in.shown != "" {
		// If the node refuses the certificate, the client may learn that only from the first answer.
		conn = f.papers.wrap(conn, in.shown)
	}
	if in.user != nobody {
		user := in.user
		if in.alone {
			user = "again"
		}
		in.pieces = append([][]byte{command("AUTH", user, passwords[in.user])}, in.pieces...)
	}
	e := &ear{fleet: f, in: in}
	if in.read == readEach {
		f.dialogue(conn, in, e)
		time.Sleep(in.hold)
		return
	}
	var listening sync.WaitGroup
	defer listening.Wait()
	defer conn.Close() // the end of the connection also ends the goroutine that reads
	heard := make(chan struct{}, 1)
	listening.Go(func() { e.listen(conn, in.read, heard) })
	for _, p := range in.pieces {
		if !f.write(conn, p, in) {
			break
		}
	}
	if in.read == readAll {
		for quiet := false; !quiet; {
			select {
			case <-heard:
			case <-time.After(silence):
				quiet = true
			}
		}
	}
	time.Sleep(in.hold)
}

// write sends a piece. It returns false if the node accepts no more bytes.
func (f *fleet) write(conn net.Conn, p []byte, in input) bool {
	if err := conn.SetWriteDeadline(time.Now().Add(writeLimit)); err != nil {
		return false
	}
	n, err := conn.Write(p)
	f.tally.sent.Add(int64(n))
	f.tally.frames.Add(1)
	if in.script {
		f.tally.scripts.Add(1)
	}
	return err == nil
}

// dialogue sends one piece after the other and waits for the answer to each.
func (f *fleet) dialogue(conn net.Conn, in input, e *ear) {
	r := bufio.NewReader(io.TeeReader(conn, e))
	var other *model
	if in.beside {
		other = f.model()
		defer other.close()
	}
	ask := func(p []byte) (v transcript.Value, err error) {
		if f.anyEnded() || !f.write(conn, p, in) {
			return v, net.ErrClosed
		}
		if err = conn.SetReadDeadline(time.Now().Add(replyLimit)); err != nil {
			return v, err
		}
		return transcript.ReadValue(r)
	}
	spoiled := false // a limit has stopped the last script here, but Redis has run it
	for i, p := range in.pieces {
		got, err := ask(p)
		if in.alone && i == 0 {
			p = command("AUTH", in.user, passwords[in.user])
		}
		if err == nil && in.beside && i > 0 && !in.alone && scripts.Stopped(got) {
			if _, err = ask(in.pieces[i-1]); err == nil {
				got, err = ask(p)
			}
		}
		if err != nil {
			return
		}
		began := time.Now()
		want, ok := other.reply(p)
		if ok && in.script {
			f.tally.compared.Add(1)
		}
		if ok && !scripts.Same(got, want) && i > 0 && !spoiled { // the first is AUTH
			short := in
			short.pieces = in.pieces[max(1, i-1) : i+1]
			took := time.Since(began)
			if in.script && !scripts.Stopped(got) && other.alsoReplies(in.pieces[i-1], p, got) {
				f.tally.unsteady.Add(1)
			} else {
				f.unlike(short, got, want, took)
			}
		}
		spoiled = scripts.Stopped(got)
	}
}

// A script that takes Redis muchInRedis or longer is much work. It may take more time or memory in lockstep than a limit allows.
const muchInRedis = 50 * time.Millisecond

// unlike records that Redis replied differently. A script that a limit stopped is played again alone, and then is no fault if Redis
// needed long, too.
func (f *fleet) unlike(in input, got, want transcript.Value, took time.Duration) {
	switch stopped := scripts.Stopped(got); {
	case stopped && !in.alone:
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stopped = append(f.stopped, in)
		return
	case stopped && took >= f.muchWork:
		f.tally.much.Add(1)
		return
	}
	f.told(unlikeRedis, "%v\nhere:\n%.1500s\nRedis:\n%.1500s", in, strings.Join(got.Lines(), "\n"), strings.Join(want.Lines(), "\n"))
}

// again plays the kept inputs one by one, each as a new user that has used no time yet.
func (f *fleet) again() error {
	f.mu.Lock()
	stopped := f.stopped
	f.stopped = nil
	f.mu.Unlock()
	for _, in := range stopped {
		rules := slices.Clone(users[slices.IndexFunc(users, func(rules []string) bool { return rules[2] == in.user })])
		rules[2] = "again"
		if _, err := f.ask(0, rules...); err != nil {
			return err
		}
		in.alone = true
		f.tally.again.Add(1)
		f.play(in)
		if _, err := f.ask(0, "ACL", "DELUSER", "again"); err != nil {
			return err
		}
	}
	return nil
}

// ear reads what a node answers, and looks for words that the client must not get.
type ear struct {
	fleet *fleet
	in    input
	tail  []byte
	told  bool
}

func (e *ear) Write(p []byte) (int, error) {
	e.fleet.tally.received.Add(int64(len(p)))
	if len(p) > 0 && e.in.shown != "" && e.in.shown != goodPaper && !e.told {
		e.told = true
		e.fleet.told(rightsBroken, "who cannot prove who it is was answered %.200q: %v", p, e.in)
	}
	e.tail = append(e.tail, p...)
	if !e.told && bytes.Contains(e.tail, []byte(e.fleet.forbidden)) {
		e.told = true
		e.fleet.told(rightsBroken, "what only others may read was told: %v", e.in)
	}
	if keep := len(e.fleet.forbidden); len(e.tail) > keep {
		e.tail = append(e.tail[:0], e.tail[len(e.tail)-keep:]...)
	}
	return len(p), nil
}

func (e *ear) listen(conn net.Conn, how reading, heard chan<- struct{}) {
	buf := make([]byte, 64<<10)
	if how == readNone {
		return
	}
	if how == readSlow {
		buf = buf[:16]
	}
	for {
		n, err := conn.Read(buf)
		_, _ = e.Write(buf[:n]) // never fails
		if err != nil {
			return
		}
		select {
		case heard <- struct{}{}:
		default:
		}
		if how == readSlow {
			time.Sleep(5 * time.Millisecond)
		}
	}
}
