package cluster

import (
	"math"
	"slices"
	"time"
)

// Stopping takes two steps. HandOver gives leadership away, and waits until the
// clients of this node and of the others know what became of their requests;
// the server then lets its clients finish; Close ends the rest. All of that
// takes milliseconds, as long as there is a majority to go on without this node.
//
// The last nodes of a cluster have none: nobody can take over, and no entry will
// ever tell what became of the last batch. What waits for such things is given
// up as soon as it is certain, and not when a supervisor loses patience.

// handoverTimeout bounds the wait for another node to take over at shutdown.
const handoverTimeout = 4 * time.Second

// stopTimeout bounds the wait for what a node still does when it is closed. A leader's
// proposal may never be committed although a majority answers: their disks are full.
const stopTimeout = 2 * time.Second

// hopePause is how often a stopping node looks whether there is a majority.
const hopePause = 50 * time.Millisecond

// HandOver gives leadership to another member, if this node has it and there
// is one. The node goes on as a follower. It returns when the peers have been
// told what became of their requests here, so that nothing is lost by stopping,
// or when nobody is left to tell.
func (n *Node) HandOver() {
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
		// The chosen member may lose the election that this starts, even to
		// this node.
		if n.leads() && !transferring {
			transferring = true
			go func() { handed <- n.transferHere("") }()
		}
		select {
		case <-pause.C:
		case <-n.waits.Done():
			n.cfg.Logger.Warn("there is nobody to hand leadership over to: no majority of the voters answers")
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

// others reports whether there are other voters.
func (n *Node) others() bool {
	members, err := n.cons.Members()
	return err == nil && slices.ContainsFunc(members, func(m Member) bool { return m.Voter && m.ID != n.cfg.ID })
}

// hope gives up what waits for a leader, or for the outcome of a batch, as soon
// as there can be none. It runs while the node stops.
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
			if n.majority() {
				continue
			}
			n.alone()
			n.keeper.close()
		}
		// A leader that has not noticed yet may still begin a batch.
		n.pending.giveUp(math.MaxUint64)
	}
}

// majority asks the voters whether they are there, and reports whether enough
// are, with this node, to elect a leader.
func (n *Node) majority() bool {
	members, err := n.cons.Members()
	if err != nil {
		return false // Raft has been stopped
	}
	voters := slices.DeleteFunc(members, func(m Member) bool { return !m.Voter })
	answers, up := n.roll(voters), 0
	for _, m := range voters {
		if answers[m.ID] {
			up++
		}
	}
	return 2*up > len(voters)
}

// finishWork returns when nothing goes on any more, and sees to it that this is so.
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
	if q, ok := n.cons.(quitter); ok {
		q.Quit()
	}
	<-done
}

// quitter is a consensus that can be told to give up what was proposed before it is closed.
type quitter interface{ Quit() }

// Close stops the node. HandOver comes first in a clean shutdown.
func (n *Node) Close() error {
	n.cancel()
	if n.cfg.Scripts != nil {
		n.cfg.Scripts.Abort()
	}
	n.finishWork()
	err := n.cons.Close()
	n.pending.giveUp(math.MaxUint64) // nothing is applied any more
	return err
}
