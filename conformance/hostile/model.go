package hostile

import (
	"bufio"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-io/lockstep/conformance/hostile/scripts"
	"github.com/lockstep-io/lockstep/conformance/transcript"
	"github.com/lockstep-io/lockstep/conformance/transcript/redisd"
)

// model is a redis-server for one input, whose script may end it. Its replies count as right. It may be nil.
type model struct {
	srv  *redisd.Server
	conn net.Conn
	r    *bufio.Reader
}

// model starts a redis-server 7.0.15, if there is one on this machine.
func (f *fleet) model() *model {
	bin, version, err := redisd.Find()
	if err != nil || version != redisd.Version {
		return nil
	}
	srv, err := redisd.Start(bin)
	if err != nil {
		return nil
	}
	m := &model{srv: srv}
	if m.conn, err = srv.Dial(); err != nil {
		m.close()
		return nil
	}
	m.r = bufio.NewReader(m.conn)
	for _, args := range users {
		if _, ok := m.reply(command(args...)); !ok {
			m.close()
			return nil
		}
	}
	f.tally.models.Add(1)
	return m
}

// reply sends a piece that is one command. It returns false if there is no reply, because the server may have ended.
func (m *model) reply(p []byte) (transcript.Value, bool) {
	if m == nil {
		return transcript.Value{}, false
	}
	return m.inNewState(p)
}

// alsoReplies reports whether Redis replies to p, sent after prior, as got says, if other garbage lies in its Lua state. When Redis
// collects garbage depends on what ran before. The collector's call of a finalizer counts as a nested call, so it may fail a script.
func (m *model) alsoReplies(prior, p []byte, got transcript.Value) bool {
	for i := range 20 {
		garbage := command("EVAL", "for i = 1, ARGV[1] do local t = {} end", "0", strconv.Itoa(i*100))
		if v, ok := m.inNewState(garbage, prior, p); !ok || scripts.Same(got, v) {
			return ok
		}
	}
	return false
}

// inNewState sends pieces, each of which is one command, and returns the reply to the last one. Before the first, Redis makes a new Lua
// state: there the settings of cjson last as long as the Lua state; in lockstep they last only as long as the script.
func (m *model) inNewState(pieces ...[]byte) (v transcript.Value, ok bool) {
	for _, p := range slices.Concat([][]byte{command("SCRIPT", "FLUSH")}, pieces) {
		if v, ok = m.ask(p); !ok {
			break
		}
	}
	return v, ok
}

// ask returns false and closes the connection if there is no reply: a late reply would seem to answer the next piece.
func (m *model) ask(p []byte) (transcript.Value, bool) {
	if m.conn == nil {
		return transcript.Value{}, false
	}
	err := m.conn.SetDeadline(time.Now().Add(replyLimit))
	if err == nil {
		_, err = m.conn.Write(p)
	}
	var v transcript.Value
	if err == nil {
		v, err = transcript.ReadValue(m.r)
	}
	if err != nil {
		m.conn.Close()
		m.conn = nil
	}
	return v, err == nil
}

func (m *model) close() {
	if m == nil {
		return
	}
	if m.conn != nil {
		m.conn.Close()
	}
	// The server may have ended by itself.
	_ = m.srv.Close()
}
