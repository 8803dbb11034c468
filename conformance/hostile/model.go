package hostile

import (
	"bufio"
	"net"
	"strconv"
	"time"

	"lockstep/conformance/hostile/scripts"
	"lockstep/conformance/transcript"
	"lockstep/conformance/transcript/redisd"
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
	if m == nil || m.conn == nil {
		return transcript.Value{}, false
	}
	if m.forgets() != nil || m.conn.SetDeadline(time.Now().Add(replyLimit)) != nil {
		return transcript.Value{}, false
	}
	v, err := m.ask(p)
	if err != nil {
		m.conn.Close()
		m.conn = nil
	}
	return v, err == nil
}

// forgets gives Redis a new Lua state: Redis keeps settings of cjson for a Lua state, lockstep only for a script.
func (m *model) forgets() error {
	_, err := m.ask(command("SCRIPT", "FLUSH"))
	return err
}

// alsoReplies reports whether Redis can reply got to p after prior. It varies Redis's garbage, because a collection can make a script
// fail.
func (m *model) alsoReplies(prior, p []byte, got transcript.Value) bool {
	for i := range 20 {
		if m.conn == nil || m.conn.SetDeadline(time.Now().Add(replyLimit)) != nil {
			return false
		}
		for _, before := range [][]byte{command("EVAL", "for i = 1, ARGV[1] do local t = {} end", "0", strconv.Itoa(i*100)), prior} {
			if _, err := m.ask(before); err != nil {
				return false
			}
		}
		if v, err := m.ask(p); err != nil || scripts.Same(got, v) {
			return err == nil
		}
	}
	return false
}

func (m *model) ask(p []byte) (transcript.Value, error) {
	if _, err := m.conn.Write(p); err != nil {
		return transcript.Value{}, err
	}
	return transcript.ReadValue(m.r)
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
