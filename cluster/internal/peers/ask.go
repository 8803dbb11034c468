package peers

import (
	"context"
	"net"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// Serve answers a peer that asks this node for its status.
func (w *Watcher) Serve(conn net.Conn) {
	defer conn.Close()
	select {
	case <-w.cfg.Opened:
	case <-w.ctx.Done():
		return
	}
	r := NewReader(conn)
	for w.ctx.Err() == nil {
		// A peer that has asked nothing for 2*Timeout has given up the connection: it waits only Timeout for an answer.
		idle := time.AfterFunc(2*Timeout, func() { conn.Close() })
		f, err := Read(r)
		if err == nil {
			peerport.HandshakeDone(conn)
			w.record(f, false)
			_, err = conn.Write(w.answerTo(f).Append(nil))
		}
		if !idle.Stop() || err != nil {
			return
		}
	}
}

// answerTo returns the status that this node sends in answer to the status f of another node.
func (w *Watcher) answerTo(f Status) Status {
	answer := w.Own()
	if answer.You = w.standing(f); answer.You != Member || f.Directory == "" {
		answer.Directory = ""
	} else {
		answer.Overruns, answer.Room = w.cfg.Overruns(), w.ownRoom()
		answer.Version, answer.Wish = w.cfg.Version, w.cfg.Wish
	}
	answer.Members, answer.ToldMembers = w.memberIDs(), true
	return answer
}

// memberIDs returns the ids of the members that this node knows.
func (w *Watcher) memberIDs() (ids []string) {
	members, err := w.cfg.Raft().Members()
	if err != nil {
		return nil
	}
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

// Run asks the other members for their status, each on a goroutine of its own (attend), and renews the topology, until the node
// closes.
func (w *Watcher) Run() {
	defer w.work.Wait()
	asked := map[string]askedPeer{}
	period := time.NewTicker(Period)
	defer period.Stop()
	for {
		w.attend(asked)
		w.Look()
		select {
		case <-w.ctx.Done():
			return
		case <-period.C:
		case <-w.moved:
		}
	}
}

// askedPeer is a member that a goroutine asks for its status until the function stop is called (askPeer).
type askedPeer struct {
	addr string
	stop context.CancelFunc
}

// attend starts asking members that are new or have a new address, and stops asking former members and old addresses.
func (w *Watcher) attend(asked map[string]askedPeer) {
	known := w.Update()
	if known == nil {
		return // Raft is being stopped
	}
	for id, p := range asked {
		if known[id] != p.addr {
			p.stop()
			delete(asked, id)
		}
	}
	for id, addr := range known {
		if _, is := asked[id]; is {
			continue
		}
		ctx, cancel := context.WithCancel(w.ctx)
		asked[id] = askedPeer{addr: addr, stop: cancel}
		w.work.Go(func() { w.askPeer(ctx, id, addr) })
	}
}

// askPeer asks the member with this id for its status, over and over, until ctx ends.
func (w *Watcher) askPeer(ctx context.Context, id, addr string) {
	for ctx.Err() == nil {
		if conn, err := w.cfg.Dialer.Dial(addr, peerport.ProtoFacts, peerport.DialTimeout); err == nil {
			w.askOn(ctx, id, conn)
		}
		select {
		case <-ctx.Done():
		case <-time.After(Period):
		}
	}
}

// askOn does the work of askPeer on one connection, until the connection fails or ctx ends.
func (w *Watcher) askOn(ctx context.Context, id string, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	period := time.NewTicker(Period)
	defer period.Stop()
	r := NewReader(conn)
	for {
		timer := time.AfterFunc(Timeout, func() { conn.Close() })
		_, done := w.cfg.Raft().Proposed()
		f, err := Exchange(conn, r, w.Own())
		timer.Stop()
		if err != nil {
			return
		}
		f.asOf = done
		w.record(f, true)
		w.disown(id, f)
		select {
		case <-ctx.Done():
			return
		case <-period.C:
		}
	}
}

// Visit asks the node at a peer address for its status.
func (w *Watcher) Visit(addr string) (Status, bool) {
	if addr == w.cfg.PeerAddr {
		return w.Own(), true
	}
	own := w.Own()
	own.Directory = "" // the address may belong to a stranger, which must not learn the name of the directory
	return w.visit(addr, own)
}

// Foreign reports whether the node at addr takes this node for a stranger or has the same id. It works without Raft.
func (w *Watcher) Foreign(addr string) bool {
	f, ok := w.visit(addr, Status{ID: w.cfg.ID})
	return ok && (f.You == Stranger || f.ID == w.cfg.ID)
}

func (w *Watcher) visit(addr string, own Status) (Status, bool) {
	conn, err := w.cfg.Dialer.Dial(addr, peerport.ProtoFacts, peerport.DialTimeout)
	if err != nil {
		return Status{}, false
	}
	defer conn.Close()
	timer := time.AfterFunc(Timeout, func() { conn.Close() })
	defer timer.Stop()
	f, err := Exchange(conn, NewReader(conn), own)
	return f, err == nil
}

// Answering returns this node and the members that answer now. Their last status does not count: a member may have died since.
func (w *Watcher) Answering(members []raftnode.Member) map[string]bool {
	up := map[string]bool{w.cfg.ID: true}
	answers := make(chan string, len(members))
	calls := 0
	for _, m := range members {
		if m.ID == w.cfg.ID {
			continue
		}
		calls++
		go func() {
			if f, ok := w.visit(m.PeerAddr, w.Own()); ok && w.answersFor(f, m) {
				answers <- m.ID
				return
			}
			answers <- ""
		}()
	}
	for range calls {
		if id := <-answers; id != "" {
			up[id] = true
		}
	}
	return up
}

// answersFor reports whether f comes from m itself: a foreign node, or one without m's data, may now have m's address.
func (w *Watcher) answersFor(f Status, m raftnode.Member) bool {
	own := w.cfg.Raft().Cluster()
	if f.ID != m.ID || own != "" && f.Cluster != "" && f.Cluster != own {
		return false
	}
	switch {
	case f.You == Member:
		met, same := w.cfg.Raft().Met(f.ID, f.Directory)
		return same || !met
	case f.You == Unknown:
		return !m.Voter || f.Cluster == own
	}
	return !m.Voter
}
