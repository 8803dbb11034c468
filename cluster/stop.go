package cluster

import (
	"math"
	"slices"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// A leader stops in two steps. HandOver transfers leadership, and waits for the outcomes of the requests that this leader has taken.
// After the server has let its clients finish, Close ends what still runs. When a whole cluster is stopped, its last nodes have no
// majority, and stop waiting.

// handoverTimeout bounds the wait for another node to take over at shutdown.
const handoverTimeout = 4 * time.Second

// stopTimeout bounds the wait for the work of a closing node: a proposal may never be committed.
const stopTimeout = 2 * time.Second

// hopePause is how often a stopping node looks whether there is a majority.
const hopePause = 50 * time.Millisecond

// HandOver prepares this node for Close. If this node leads, HandOver transfers leadership to another voter, and waits until the peers
// have the outcomes of the requests that they sent here. Then Close loses nothing. HandOver gives up when no majority answers, when
// the disk of this node hangs, or after handoverTimeout.
func (n *Node) HandOver() {
	n.stopping.Store(true)
	if !n.others() {
		return
	}
	n.work.Add(1)
	go n.hope()
	if !n.leads() {
		return
	}
	timeout, pause := time.After(handoverTimeout), time.NewTicker(retryPause)
	defer pause.Stop()
	handed, transferring, said := make(chan error, 1), false, ""
	for n.leads() || n.pending.len() > 0 || n.served.Load() > 0 {
		// The chosen member may lose the election that the transfer starts, even to
		// this node. Then this node transfers its leadership again.
		if n.leads() && !transferring {
			transferring = true
			go func() { handed <- n.transferHere("") }()
		}
		select {
		case <-pause.C:
		case <-n.waits.Done():
			n.cfg.Logger.Warn("leadership is not handed over: no majority of the voters answers, or the disk of this node hangs", "disk", n.cons.Overdue())
			return
		case <-timeout:
			n.cfg.Logger.Warn("leadership was not handed over in time", "peers", n.served.Load(), "batches", n.pending.len())
			return
		}
		select {
		case err := <-handed:
			transferring = false
			if err != nil && err.Error() != said {
				said = err.Error()
				n.cfg.Logger.Info("leadership is not handed over yet", "error", err)
			}
		default:
		}
	}
}

// Stopping reports whether HandOver has been called: this node stops, and should get no new clients.
func (n *Node) Stopping() bool { return n.stopping.Load() }

// others reports whether there are other voters.
func (n *Node) others() bool {
	members, err := n.cons.Members()
	return err == nil && slices.ContainsFunc(members, func(m raftnode.Member) bool { return m.Voter && m.ID != n.cfg.ID })
}

// hope ends the waits for a leader and for the outcome of a batch once they are in vain. It runs from HandOver until Close.
func (n *Node) hope() {
	defer n.work.Done()
	pause := time.NewTicker(hopePause)
	defer pause.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-pause.C:
		}
		if n.waits.Err() == nil {
			if n.majority() && !n.hangs() {
				continue
			}
			n.alone()
			n.blockRegistry.close()
		}
		// giveUp is called at each tick. This node may still lead without having noticed that the majority is lost, and begin
		// another batch.
		n.pending.giveUp(math.MaxUint64)
	}
}

// hangs reports whether this node leads and its disk seems to hang. A transfer of leadership would wait for the entry that is being
// written.
func (n *Node) hangs() bool { return n.leads() && n.cons.Overdue() != "" }

// majority asks all voters, and reports whether enough of them answer, this node included, to elect a leader.
func (n *Node) majority() bool {
	members, err := n.cons.Members()
	if err != nil {
		return false // Raft has been stopped
	}
	voters := slices.DeleteFunc(members, func(m raftnode.Member) bool { return !m.Voter })
	answers, up := n.peers.Answering(voters), 0
	for _, m := range voters {
		if answers[m.ID] {
			up++
		}
	}
	return 2*up > len(voters)
}

// finishWork waits until all goroutines of the node have ended. After stopTimeout it makes the consensus give up its
// proposals.
func (n *Node) finishWork() {
	done := make(chan struct{})
	go func() {
		n.work.Wait()
		close(done)
	}()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	n.cons.Quit()
	<-done
}

// Close stops the node. HandOver comes first in a clean shutdown.
func (n *Node) Close() error {
	n.cancel()
	if n.cfg.Scripts != nil {
		n.cfg.Scripts.Abort()
	}
	n.finishWork()
	err := n.cons.Close()
	n.pending.giveUp(math.MaxUint64) // no entry is applied any more that could settle the fate of these batches
	return err
}
