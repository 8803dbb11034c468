package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/conformance/chaos/history"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// hearLimit is how long a message may take after everything is healed: TCP may repeat a lost segment late.
const hearLimit = 30 * time.Second

// listener subscribes at one node, and subscribes again whenever its connection ends.
type listener struct {
	e    *epoch
	n    *node
	stop chan struct{}

	mu   sync.Mutex
	conn net.Conn // nil: none
	subs []history.Subscription
}

func (e *epoch) channel() string { return fmt.Sprintf("e%d:messages", e.n) }

// run listens until it is told to stop.
func (l *listener) run() {
	for !ended(l.stop) {
		// An error is no failure here, because the network breaks connections. What was heard on each connection is checked later.
		if err := l.listen(); err != nil && !ended(l.stop) {
			l.e.note("the subscriber at %s: %v", l.n.id, err)
		}
		select {
		case <-l.stop:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// listen hears on one connection until the connection ends.
func (l *listener) listen() error {
	conn, err := l.e.s.f.clients.Dial(l.n.at(plainPort), dialTimeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(replyTimeout)); err != nil {
		return err
	}
	resp := respclient.NewConn(conn)
	if _, err := resp.Do("SUBSCRIBE", l.e.channel()); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	l.mu.Lock()
	l.conn = conn
	l.subs = append(l.subs, history.Subscription{Via: l.n.id, Since: l.e.s.now()})
	sub := &l.subs[len(l.subs)-1]
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.conn = nil
		l.mu.Unlock()
	}()
	for {
		reply, err := resp.Receive()
		if err != nil {
			return err
		}
		words, _ := reply.([]any)
		if len(words) != 3 || words[0] != "message" {
			continue // the answer to PING
		}
		l.mu.Lock()
		sub.Heard = append(sub.Heard, fmt.Sprint(words[2]))
		l.mu.Unlock()
	}
}

// hears waits until the message has come, or until the connection that should have brought it has ended.
func (l *listener) hears(text string) error {
	l.mu.Lock()
	conn, at := l.conn, len(l.subs)-1
	l.mu.Unlock()
	if conn == nil {
		return nil
	}
	// If the node was killed, its end of the connection is gone, but this end may still be open. A write makes TCP notice that.
	if err := respclient.NewConn(conn).Send("PING"); err != nil {
		return nil // the connection has ended
	}
	for deadline := time.Now().Add(hearLimit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { // polls a process
		l.mu.Lock()
		heard := l.subs[at].Heard
		over := l.conn != conn || len(heard) > 0 && heard[len(heard)-1] == text
		l.mu.Unlock()
		if over {
			return nil
		}
	}
	return fmt.Errorf("the subscriber at %s has not heard %s in %v, and is still connected", l.n.id, text, hearLimit)
}

// end ends the connection for good.
func (l *listener) end() {
	close(l.stop)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn != nil {
		// An error changes nothing: the reader ends either way.
		_ = l.conn.Close()
	}
}

// publish sends a message to everyone who listens.
func (w *worker) publish() {
	text := w.unique()
	op, _, known := w.attempt(history.Op{Kind: history.Message, Key: w.e.channel(), Call: "publish", Owner: text}, func() (string, outcome, error) {
		return w.c.do("PUBLISH", w.e.channel(), text)
	})
	if known == done || known == unknown {
		w.e.published(history.Publication{Text: text, Invoke: op.Invoke, Return: op.Return, Acknowledged: known == done})
	}
}

func (e *epoch) published(p history.Publication) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = append(e.sent, p)
}

// listeners makes a subscriber at some nodes, because a leader sends entries in another way to nodes without subscribers.
func (e *epoch) listeners(r *rand.Rand) (list []*listener) {
	for _, n := range e.s.f.nodes {
		if r.IntN(2) == 0 {
			list = append(list, &listener{e: e, n: n, stop: make(chan struct{})})
		}
	}
	return list
}

// listenUp sends a last message and checks that every connected listener hears it.
func (e *epoch) listenUp(list []*listener) {
	p := history.Publication{Text: "the last one", Invoke: e.s.now(), Acknowledged: true}
	if _, err := e.s.f.nodes[0].ask("PUBLISH", e.channel(), p.Text); err != nil {
		e.fail("PUBLISH, although everything was healed: %v", err)
		return
	}
	p.Return = e.s.now()
	e.published(p)
	for _, l := range list {
		if err := l.hears(p.Text); err != nil {
			e.fail("%v", err)
		}
	}
}

// checkMessages checks what all listeners have heard. They must have ended.
func (e *epoch) checkMessages(list []*listener) {
	var subs []history.Subscription
	for _, l := range list {
		subs = append(subs, l.subs...)
	}
	for _, what := range history.CheckMessages(e.sent, subs) {
		e.fail("%s", what)
	}
}
