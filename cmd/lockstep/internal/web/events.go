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
	lockChannels = "__lock@*"

	mostStreams          = 48 // of all users
	mostStreamsOfSession = 6
	// heard is how many messages may wait for a stream. A stream that has more to send loses messages, and says how many.
	heard = 256
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

// message is a message about a lock.
type message struct {
	channel string
	text    any // a string or a cut
}

// feed is a connection that listens to the messages about locks, for all streams of a session.
type feed struct {
	*link

	mu   sync.Mutex
	ears map[*ear]struct{}
}

// ear is what a stream listens with.
type ear struct {
	messages chan message
	mu       sync.Mutex
	lost     int
}

// listen makes the feed of a session; nil if the server refuses the subscription.
func (h *Handler) listen(r *http.Request, user, password string) (*feed, error) {
	l := newLink(h.open(r))
	late := time.AfterFunc(askTime, l.drop)
	defer late.Stop()
	if _, err := l.exchange(mostText, "AUTH", user, password); err != nil {
		l.drop()
		return nil, loginFault(err)
	}
	if _, err := l.exchange(mostText, "PSUBSCRIBE", lockChannels); err != nil {
		l.drop()
		if errors.Is(err, errGone) {
			return nil, errNoServer
		}
		return nil, nil
	}
	l.most.Store(mostMessage)
	f := &feed{link: l, ears: map[*ear]struct{}{}}
	go f.run()
	return f, nil
}

// run gives each message to all ears. It never waits for one.
func (f *feed) run() {
	for {
		select {
		case v := <-f.replies:
			f.tell(v)
		case <-f.closed:
			return
		}
	}
}

func (f *feed) tell(v any) {
	list, ok := v.([]any)
	if !ok || len(list) != 4 {
		return
	}
	channel, ok := list[2].(string)
	if !ok {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for e := range f.ears {
		e.hear(message{channel, list[3]})
	}
}

func (e *ear) hear(m message) {
	select {
	case e.messages <- m:
	default:
		e.mu.Lock()
		e.lost++
		e.mu.Unlock()
	}
}

// lostSince returns how many messages were lost since the last call.
func (e *ear) lostSince() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := e.lost
	e.lost = 0
	return n
}

func (f *feed) add(e *ear) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ears[e] = struct{}{}
}

func (f *feed) remove(e *ear) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.ears, e)
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
	leave, err := c.enterStream()
	if err != nil {
		return nil, err
	}
	defer leave()
	e := &ear{messages: make(chan message, heard)}
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
	last := ""
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
			out.message(m)
		case <-tick.C:
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
	v, err := o.c.overview()
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
