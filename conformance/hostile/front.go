package hostile

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// maxRecorded is how many bytes of one connection are recorded.
const maxRecorded = 256 << 10

// recording is what one end of a connection has sent, in the pieces in which it arrived.
type recording struct {
	chunks [][]byte
	size   int
}

// front listens in place of a node's peer port. It passes everything on to the node and records what comes in.
type front struct {
	ln net.Listener

	mu       sync.Mutex
	to       string
	closed   bool // the front records nothing more
	recorded []*recording
	conns    []net.Conn
	work     sync.WaitGroup
}

// newFront makes a front that listens. Until the method "before" is called, the front closes every connection at once.
func newFront(t testing.TB) *front {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	fr := &front{ln: ln}
	fr.work.Go(fr.serve)
	t.Cleanup(func() {
		ln.Close()
		fr.mu.Lock()
		for _, c := range fr.conns {
			c.Close()
		}
		fr.mu.Unlock()
		fr.work.Wait()
	})
	return fr
}

// before tells the front the address of the node, to which the front from then on passes its connections. It returns the front's
// own address.
func (fr *front) before(to string) string {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	fr.to = to
	return fr.ln.Addr().String()
}

func (fr *front) serve() {
	for {
		in, err := fr.ln.Accept()
		if err != nil {
			return // the front was closed
		}
		fr.mu.Lock()
		to := fr.to
		fr.mu.Unlock()
		out, err := net.Dial("tcp", to)
		if err != nil {
			in.Close() // the node is not there yet
			continue
		}
		fr.mu.Lock()
		fr.conns = append(fr.conns, in, out)
		var rec *recording
		if !fr.closed {
			rec = &recording{}
			fr.recorded = append(fr.recorded, rec)
		}
		fr.mu.Unlock()
		fr.work.Go(func() { fr.pass(out, in, rec) })
		fr.work.Go(func() { fr.pass(in, out, nil) })
	}
}

// pass copies from one connection to the other until one of them closes, and then closes both.
func (fr *front) pass(to, from net.Conn, rec *recording) {
	defer to.Close()
	defer from.Close()
	if rec == nil {
		_, _ = io.Copy(to, from) // either end may close at any time
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		fr.keep(rec, buf[:n])
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (fr *front) keep(rec *recording, p []byte) {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	if len(p) == 0 || fr.closed || rec.size > maxRecorded {
		return
	}
	rec.chunks = append(rec.chunks, append([]byte(nil), p...))
	rec.size += len(p)
}

// recordings ends the recording and returns what was recorded.
func (fr *front) recordings() []*recording {
	fr.mu.Lock()
	defer fr.mu.Unlock()
	fr.closed = true
	var list []*recording
	for _, r := range fr.recorded {
		if len(r.chunks) > 0 {
			list = append(list, r)
		}
	}
	return list
}

// record plays attackers' commands, and returns what went over the links between the nodes. The innocents must not have started yet.
func (f *fleet) record() ([]*recording, error) {
	if len(f.fronts) == 0 {
		return nil, nil
	}
	var faults []error
	for i := range f.nodes {
		for _, args := range [][]string{
			{"SET", "evil:recorded", "1"}, {"GET", "evil:recorded"}, {"EVAL", "return redis.call('INCR', 'evil:recorded')", "1", "evil:recorded"},
			{"PUBLISH", "evil:news", "hello"}, {"HSET", "evil:hash", "a", "b"}, {"LPUSH", "evil:list", "x"}, {"BLPOP", "evil:none", "0.01"}, {"LOCKSTEP", "STATUS"},
		} {
			_, err := f.ask(i, args...)
			faults = append(faults, err)
		}
	}
	var all []*recording
	for _, fr := range f.fronts {
		all = append(all, fr.recordings()...)
	}
	return all, errors.Join(faults...)
}
