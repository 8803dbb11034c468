package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	mostStreams          = 48 // of all users
	mostStreamsOfSession = 6
	// heard is how many messages may wait for a stream. A stream that has more to send loses messages, and says how many.
	heard = 256
	// mostTold is how many messages a stream has between two looks at the node.
	mostTold = 100
	// mostMessage is how many bytes of a message are kept.
	mostMessage = 16 << 10
	// stateTime is how often a stream looks at the node. It is also the heartbeat.
	stateTime = time.Second
	// sendTime is how long a client may take to read an event.
	sendTime = 5 * time.Second
)

// streams counts the open event streams.
type streams struct {
	mu   sync.Mutex
	open int
}

// enterStream counts a stream, unless there are too many.
func (c *call) enterStream() (leave func(), err error) {
	c.streams.mu.Lock()
	defer c.streams.mu.Unlock()
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.streams.open >= mostStreams || c.s.streams >= mostStreamsOfSession {
		return nil, errStreams
	}
	c.streams.open++
	c.s.streams++
	return func() {
		c.streams.mu.Lock()
		defer c.streams.mu.Unlock()
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.streams.open--
		c.s.streams--
	}, nil
}

// stream answers with events until the client, the session or the server ends: "state" whenever the overview has changed, "lock" for
// each message, "lost" with the number of messages that the client was too slow for.
func (c *call) stream() (any, error) {
	all := c.r.URL.Query().Get("all") == "1"
	if all && !c.May(c.s.user, "psubscribe", allChannels) {
		return nil, errEvents
	}
	leave, err := c.enterStream()
	if err != nil {
		return nil, err
	}
	defer leave()
	e := &ear{messages: make(chan message, heard), all: all}
	if c.s.feed != nil {
		c.s.feed.add(e)
		defer c.s.feed.remove(e)
	}
	control := http.NewResponseController(c.w)
	// The server's time for reading a request would end the stream. Not every writer has deadlines: one of a test has none.
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, errNoServer
	}
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	c.w.Header().Set("X-Accel-Buffering", "no")
	out := &sender{c: c, control: control}
	out.write(fmt.Sprintf("retry: %d\n\n", stateTime.Milliseconds()))
	tick := time.NewTicker(stateTime)
	defer tick.Stop()
	last, told := "", 0
	for first := true; out.err == nil; first = false {
		if first {
			last = out.state(last)
			continue
		}
		select {
		case <-c.r.Context().Done():
			return nil, nil
		case <-c.s.ctx.Done():
			out.event("end", map[string]string{"error": errLogin.text})
			return nil, nil
		case m := <-e.messages:
			if told++; told > mostTold {
				e.lose(1)
			} else {
				out.message(m)
			}
		case <-tick.C:
			told = 0
			if n := e.lostSince(); n > 0 {
				out.event("lost", map[string]int{"messages": n})
			}
			last = out.state(last)
		}
	}
	return nil, nil
}

// sender writes events. After an error it writes nothing.
type sender struct {
	c       *call
	control *http.ResponseController
	err     error
}

// write sends a text. A client that does not read it in sendTime is cut off.
func (o *sender) write(text string) {
	if o.err != nil {
		return
	}
	now := o.c.Wall()
	if err := o.control.SetWriteDeadline(now.Add(sendTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		o.err = err
		return
	}
	if _, o.err = o.c.w.Write([]byte(text)); o.err == nil {
		o.err = o.control.Flush()
	}
}

func (o *sender) event(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		o.err = err
		return
	}
	o.write("event: " + name + "\ndata: " + string(data) + "\n\n")
}

// state sends the overview if it has changed, and otherwise a heartbeat.
func (o *sender) state(last string) string {
	v, err := o.c.overview(false)
	var answer any
	if err != nil {
		answer = map[string]string{"error": faultOf(err).text}
	} else {
		answer = v.json()
	}
	data, err := json.Marshal(answer)
	if err != nil {
		o.err = err
		return last
	}
	if string(data) == last {
		o.write(": alive\n\n")
		return last
	}
	o.write("event: state\ndata: " + string(data) + "\n\n")
	return string(data)
}

// message sends a message about a lock.
func (o *sender) message(m message) {
	db, event := splitChannel(m.channel)
	v := map[string]any{"db": db, "event": strings.ToValidUTF8(event, "\uFFFD")}
	text, whole := m.text.(string)
	var details map[string]any
	if whole && json.Unmarshal([]byte(text), &details) == nil {
		v["message"] = details
	} else {
		v["unreadable"] = true
	}
	o.event("lock", v)
}

// splitChannel splits __lock@<db>__:<event>.
func splitChannel(channel string) (db, event string) {
	rest := strings.TrimPrefix(channel, "__lock@")
	db, event, _ = strings.Cut(rest, "__:")
	return strings.ToValidUTF8(db, "\uFFFD"), event
}
