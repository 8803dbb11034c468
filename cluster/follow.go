package cluster

import (
	"bufio"
	"context"
	"net"
	"time"
)

const (
	dialTimeout = 500 * time.Millisecond
	redialPause = 20 * time.Millisecond
)

// follow keeps a link to the leader until ctx ends.
func (n *Node) follow(ctx context.Context, leader leadership) {
	for ctx.Err() == nil {
		l, r, err := n.connect(leader.addr)
		if err != nil {
			n.cfg.Logger.Debug("no link to the leader", "leader", leader.id, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(redialPause):
			}
			continue
		}
		n.learn(l.peer)
		n.routes.set(ctx, nil, l)
		ended := make(chan struct{})
		go func() {
			l.read(r)
			close(ended)
		}()
		select {
		case <-ended:
			n.routes.drop(nil, l)
		case <-ctx.Done():
			n.retire(l, ended)
			return
		}
	}
}

// retire ends a link whose peer leads no more, after leaving it the time to
// say what became of the requests that it still has.
func (n *Node) retire(l *link, ended <-chan struct{}) {
	n.routes.drop(nil, l)
	l.retire()
	n.work.Add(1)
	go func() {
		defer n.work.Done()
		select {
		case <-ended:
		case <-n.ctx.Done():
		case <-time.After(2 * n.cfg.FailoverWait):
		}
		l.fail()
		<-ended
	}()
}

// connect opens a forwarding connection and exchanges greetings.
func (n *Node) connect(addr string) (*link, *bufio.Reader, error) {
	conn, err := dialPeer(addr, protoForward, dialTimeout)
	if err != nil {
		return nil, nil, err
	}
	return n.greet(conn)
}

// greet makes a link of a new connection.
func (n *Node) greet(conn net.Conn) (*link, *bufio.Reader, error) {
	timer := time.AfterFunc(dialTimeout, func() { conn.Close() })
	defer timer.Stop()
	if _, err := conn.Write(n.greeting().append(nil)); err != nil {
		conn.Close()
		return nil, nil, err
	}
	r := bufio.NewReaderSize(conn, 1<<16)
	peer, err := readGreeting(r)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	l := newLink(conn, peer)
	go l.out.run()
	return l, r, nil
}
