package cluster

import (
	"bufio"
	"errors"
	"github.com/lockstep-io/lockstep/cluster/internal/peers"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// answering returns a function that connects to a living peer. That peer answers only status requests.
func answering(id string) func(string, byte, time.Duration) (net.Conn, error) {
	return func(string, byte, time.Duration) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			r := bufio.NewReader(far)
			if _, err := r.ReadByte(); err != nil { // the byte that chooses the protocol
				return
			}
			for {
				if _, err := peers.Read(r); err != nil {
					return
				}
				if _, err := far.Write(peers.Status{ID: id}.Append(nil)); err != nil {
					return
				}
			}
		}()
		return near, nil
	}
}

// A leader that hands over does not end before its peers know the outcomes of their requests.
func TestHandOverWaitsForThePeers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.cfg.peers.Network = answering("n2")
		n.lead()
		near, far := net.Pipe()
		go n.serveForward(far)
		peer := newTestNode(t)
		l, r, err := peer.connectOver(near)
		if err != nil {
			t.Fatal(err)
		}
		go peer.use(n.ctx, l, r)
		synctest.Wait()
		n.log.decides(0, always(applyLater))
		n.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
		reply := peer.start("INCR counter")
		synctest.Wait()
		start, handed := time.Now(), make(chan time.Duration)
		go func() {
			n.HandOver()
			handed <- time.Since(start)
		}()
		synctest.Wait()
		n.depose()
		peer.routes.drop(nil, l)
		l.Retire()
		time.Sleep(300 * ms)
		n.log.set(func(l *fakeLog) { l.settle() }) // the next leader's entries arrive
		if took := <-handed; took < 300*ms || took > 310*ms {
			t.Errorf("handing over took %v", took)
		}
		if got := <-reply; got != "1" {
			t.Errorf("got %q", got)
		}
	})
}

// A leader whose disk hangs cannot hand over. So it gives up at once, answers its clients at once, and does not go on leading.
func TestLeaderWhoseDiskHangsDoesNotWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.cfg.peers.Network = answering("n2")
		n.lead()
		n.log.decides(time.Minute, always(commitSlowly))
		inFlight := n.start("INCR counter")
		synctest.Wait()
		n.log.set(func(l *fakeLog) { l.overdue = "the disk hangs" })
		start := time.Now()
		n.HandOver()
		if got := <-inFlight; got != "-INDETERMINATE" {
			t.Errorf("what was in flight is answered %q", got)
		}
		if took := time.Since(start); took > 100*ms {
			t.Errorf("handing over took %v", took)
		}
		time.Sleep(time.Minute) // until the disk answers
	})
}

// The last node of a cluster does not wait for a leader that nobody could elect, or for an entry that nobody will write.
func TestLastNodeDoesNotWait(t *testing.T) {
	for name, dial := range map[string]func(string, byte, time.Duration) (net.Conn, error){
		"the others are gone": func(string, byte, time.Duration) (net.Conn, error) { return nil, errors.New("connection refused") },
		"the others stand still": func(string, byte, time.Duration) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, far) }()
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newTestNode(t)
				n.cfg.peers.Network = dial
				n.lead()
				n.log.decides(0, always(applyLater))
				n.log.set(func(l *fakeLog) { l.barrier = func() error { return errDeposed } })
				inFlight := n.start("INCR counter")
				synctest.Wait()
				n.depose()
				waits := n.start("INCR other")
				synctest.Wait()
				start := time.Now()
				n.elect() // but the node cannot lead: the barrier is never reached
				n.HandOver()
				if took := time.Since(start); took > 1200*ms {
					t.Errorf("handing over took %v", took)
				}
				if got := <-inFlight; got != "-INDETERMINATE" {
					t.Errorf("what was in flight is answered %q", got)
				}
				if got := <-waits; got != "-CLUSTERDOWN" {
					t.Errorf("what waited for a leader is answered %q", got)
				}
				if took := time.Since(start); took > 1200*ms {
					t.Errorf("they were told after %v", took)
				}
				time.Sleep(peers.Timeout) // until it has given up calling the others
			})
		})
	}
}
