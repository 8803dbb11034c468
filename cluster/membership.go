package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockstep/cluster/internal/roster"
	"lockstep/store"
)

// Membership. A change may be asked of any node; the leader makes it. Every change can be asked for
// again, so a change with an unknown outcome is asked for again.
//
// Taking in: a node comes without a vote and gets it later (promote.go). The leader asks back at the
// address that it is given. The node itself must answer there, and it must not belong to another
// cluster. A node with an empty directory never takes the place of a voter with the same id: it has
// forgotten what it voted for.
//
// Taking out: no timer removes a member. The members that stay must have a majority that is up, or the
// removal itself could not be committed. The leader asks them at that moment, because what it has
// heard of them may be a second old. No flag forces a removal: it would leave a cluster without a
// leader. A leader that is to be removed hands over first, and its successor does the rest.

// adminTimeout bounds a change of membership, the wait for a leader included.
const adminTimeout = 8 * time.Second

// adminKind is what a change of membership is asked for.
type adminKind byte

const (
	adminAdd    adminKind = 1 // by an operator
	adminRemove adminKind = 2
	adminJoin   adminKind = 3 // by the new member
)

// adminRequest asks for a change of membership.
type adminRequest struct {
	kind     adminKind
	id, addr string
}

func (a adminRequest) append(buf []byte) []byte {
	return appendStr(appendStr(append(buf, byte(a.kind)), a.id), a.addr)
}

func readAdmin(body []byte) (adminRequest, error) {
	if len(body) == 0 {
		return adminRequest{}, errFrame
	}
	r := fieldReader{b: body[1:]}
	a := adminRequest{adminKind(body[0]), string(r.bytes()), string(r.bytes())}
	if r.bad || a.kind < adminAdd || a.kind > adminJoin {
		return adminRequest{}, errFrame
	}
	return a, nil
}

// Add takes a node into the cluster, without a vote until it has caught up; or
// tells the others that a member has another address.
func (n *Node) Add(id, peerAddr string) error {
	return n.administer(adminRequest{adminAdd, id, peerAddr})
}

// Remove takes a member out of the cluster.
func (n *Node) Remove(id string) error { return n.administer(adminRequest{kind: adminRemove, id: id}) }

// check fails if a request cannot be fulfilled by any leader. It is asked where the request
// comes from, and by the leader again: a peer may carry anything.
func (a adminRequest) check() error {
	if a.kind == adminRemove {
		return nil // of whatever is there
	}
	if err := roster.CheckID(a.id); err != nil {
		return err
	}
	if roster.CheckAddress(a.addr) != nil {
		return fmt.Errorf("%q is no peer address: want host:port", roster.Clip(a.addr))
	}
	return nil
}

// administer has the leader make a change, whoever that is.
func (n *Node) administer(a adminRequest) error {
	if err := a.check(); err != nil {
		return err
	}
	if _, ok := n.cons.(reconfigurer); !ok {
		return ErrOneNode
	}
	ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
	defer cancel()
	leaderless := time.NewTimer(n.cfg.FailoverWait)
	defer leaderless.Stop()
	last, again := error(ErrNoLeader), false
	for {
		rt := n.routes.get()
		if rt.seq != nil || rt.link != nil {
			err := n.administerBy(ctx, rt, a)
			if err == nil || again && a.kind == adminRemove && isNoMember(err) {
				return nil
			}
			if !errors.Is(err, errNotExecuted) && !errors.Is(err, errUnknown) {
				return err
			}
			again = again || errors.Is(err, errUnknown)
			last = ErrUnsettled
		}
		changed, pause := rt.changed, (<-chan time.Time)(nil)
		if rt.seq != nil || rt.link != nil {
			pause = time.After(10 * retryPause)
		}
		select {
		case <-ctx.Done():
			return last
		case <-leaderless.C:
			if rt.seq == nil && rt.link == nil {
				if again {
					return ErrUnsettled
				}
				return ErrNoLeader
			}
			leaderless.Reset(n.cfg.FailoverWait)
		case <-changed:
		case <-pause:
		}
	}
}

// administerBy asks whoever leads.
func (n *Node) administerBy(ctx context.Context, rt route, a adminRequest) error {
	if rt.seq != nil {
		return n.administerHere(ctx, a)
	}
	reply, err := n.ask(ctx, rt.link, frameAdmin, a.append(nil))
	if err != nil {
		return err
	}
	if why, is := strings.CutPrefix(reply.Str, refusalCode); is && reply.IsError() {
		return refusal(why)
	}
	if reply.IsError() {
		return errors.New(strings.TrimPrefix(reply.Str, "ERR "))
	}
	return nil
}

// refusal is why a change cannot be made until somebody decides otherwise: what
// it asks for contradicts the configuration.
type refusal string

func (r refusal) Error() string { return string(r) }

func contradicts(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// refusalCode begins a refusal on its way to another node.
const refusalCode = "REFUSED "

// isNoMember recognises ErrNoMember, which may have come from another node as
// text.
func isNoMember(err error) bool { return strings.HasPrefix(err.Error(), ErrNoMember.Error()) }

// serveAdmin makes a change that another node carries here.
func (n *Node) serveAdmin(f frame, p *peerConn) error {
	a, err := readAdmin(f.body)
	if err != nil {
		return err
	}
	go func() {
		ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
		defer cancel()
		err := errNotExecuted
		if n.leads() {
			err = n.administerHere(ctx, a)
		}
		// A lost link is the asking node's business.
		_ = p.out.send(frameResult, f.id, func(b []byte) []byte {
			switch {
			case err == nil:
				return appendReplies(b, []store.Reply{store.OK})
			case errors.Is(err, errNotExecuted):
				return append(b, statusNotExecuted)
			case errors.Is(err, errUnknown):
				return append(b, statusUnknown)
			}
			code := "ERR "
			if _, is := errors.AsType[refusal](err); is {
				code = refusalCode
			}
			return appendReplies(b, []store.Reply{store.Err(store.Error(code + err.Error()))})
		})
	}()
	return nil
}

// administerHere makes a change on this node, the leader.
func (n *Node) administerHere(ctx context.Context, a adminRequest) error {
	rc, ok := n.cons.(reconfigurer)
	if !ok {
		return ErrOneNode
	}
	if err := a.check(); err != nil {
		return err
	}
	if a.kind == adminRemove {
		return n.removeHere(ctx, rc, a.id)
	}
	return n.addHere(ctx, rc, a)
}

// addHere makes a node a member without a vote, or gives a member another
// address.
func (n *Node) addHere(ctx context.Context, rc reconfigurer, a adminRequest) error {
	found, reached := n.visit(a.addr)
	switch {
	case reached && found.id != a.id:
		return contradicts("at %s there is %s, not %s: give the address under which the other nodes reach %s (--peer-advertise)", a.addr, found.id, a.id, a.id)
	case reached && found.cluster != "" && rc.Cluster() != "" && found.cluster != rc.Cluster():
		return contradicts("%s at %s is a member of another cluster: start it with an empty data directory and --join", a.id, a.addr)
	case !reached && a.kind == adminJoin:
		return fmt.Errorf("the leader, %s, cannot reach %s at %s: that must be the address under which the other nodes reach it (--peer-advertise)", n.cfg.ID, a.id, a.addr)
	}
	return rc.Reconfigure(ctx, func(members []Member) (change, error) {
		for _, m := range members {
			if m.PeerAddr == a.addr && m.ID != a.id {
				return change{}, contradicts("%s is the peer address of %s: remove that one first, or give another address", a.addr, m.ID)
			}
		}
		at := slices.IndexFunc(members, func(m Member) bool { return m.ID == a.id })
		switch {
		case at < 0:
			return change{addNonVoter, a.id, a.addr}, nil
		case a.kind == adminJoin && members[at].Voter:
			// It has forgotten what it voted for and what it acknowledged.
			return change{}, contradicts("%s is a voting member already, and this node has an empty data directory: choose another --id, with a directory of its own, or take the old one out first: lockstep remove %s", a.id, a.id)
		case members[at].PeerAddr == a.addr:
			return change{}, errNoChange
		case a.kind == adminJoin:
			return change{}, contradicts("%s is the id of the member at %s: choose another --id, with a directory of its own, or take that one out first: lockstep remove %s", a.id, members[at].PeerAddr, a.id)
		case !reached:
			return change{}, fmt.Errorf("nobody answers at %s: start %s there before its address is changed", a.addr, a.id)
		case members[at].Voter:
			return change{addVoter, a.id, a.addr}, nil
		}
		return change{addNonVoter, a.id, a.addr}, nil
	})
}

// visit asks who is at a peer address.
func (n *Node) visit(addr string) (facts, bool) {
	if addr == n.cfg.peerAddr() {
		return n.facts(), true
	}
	conn, err := n.cfg.dialPeer(addr, protoFacts, dialTimeout)
	if err != nil {
		return facts{}, false
	}
	defer conn.Close()
	timer := time.AfterFunc(beatTimeout, func() { conn.Close() })
	defer timer.Stop()
	own := n.facts()
	own.directory = "" // the address may be a stranger's
	f, err := exchange(conn, newFactsReader(conn), own)
	return f, err == nil
}

// removeHere takes a member out. A leader hands over first and leaves the rest
// to its successor.
func (n *Node) removeHere(ctx context.Context, rc reconfigurer, id string) error {
	members, err := n.cons.Members()
	if err != nil {
		return errNotExecuted
	}
	up := n.roll(members)
	if id == n.cfg.ID {
		if _, err := removal(members, up, id); err != nil {
			return err
		}
		if err := n.transferHere(""); err != nil {
			return fmt.Errorf("%s leads, and could not hand over: %w", id, err)
		}
		return errNotExecuted
	}
	return rc.Reconfigure(ctx, func(members []Member) (change, error) { return removal(members, up, id) })
}

// roll calls the members and returns those that answer. What has been heard of
// them may be a second old, and one that has died since would count as up.
func (n *Node) roll(members []Member) map[string]bool {
	up := map[string]bool{n.cfg.ID: true}
	answers := make(chan string, len(members))
	calls := 0
	for _, m := range members {
		if m.ID == n.cfg.ID {
			continue
		}
		calls++
		go func() {
			if f, ok := n.visit(m.PeerAddr); ok && f.id == m.ID {
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

// removal decides whether a member may be taken out: those who stay must have a
// majority that is up, or nothing would be committed any more, the removal
// itself included.
func removal(members []Member, alive map[string]bool, id string) (change, error) {
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == id })
	if at < 0 {
		return change{}, fmt.Errorf("%w: %q", ErrNoMember, id)
	}
	if members[at].Voter {
		voters, up := 0, 0
		var down []string
		for _, m := range members {
			if !m.Voter || m.ID == id {
				continue
			}
			voters++
			if alive[m.ID] {
				up++
			} else {
				down = append(down, m.ID)
			}
		}
		switch {
		case voters == 0:
			return change{}, fmt.Errorf("%s is the only voting member: a cluster cannot be without one", id)
		case up <= voters/2:
			return change{}, fmt.Errorf("without %s the cluster would have no majority: of the %d voting members that stay, %s does not answer; start or remove that one first", id, voters, strings.Join(down, ", "))
		}
	}
	return change{kind: removeMember, id: id, addr: members[at].PeerAddr}, nil
}

// alive reports whether another member has been heard of lately.
func (n *Node) alive(id string) bool {
	now := n.cfg.Time.Monotonic()
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	h := n.disc.heard[id]
	return h != nil && h.told && now-h.seen < n.cfg.DownAfter
}

// transferHere hands leadership, which this node has, to a voter: to the one
// that has applied most if id is empty.
func (n *Node) transferHere(id string) error {
	members, err := n.cons.Members()
	if err != nil {
		return err
	}
	if id == n.cfg.ID {
		return nil
	}
	var heirs []Member
	for _, m := range members {
		if m.Voter && m.ID != n.cfg.ID && (id == "" || m.ID == id) {
			heirs = append(heirs, m)
		}
	}
	if id != "" && len(heirs) == 0 {
		return ErrNoSuchMember
	}
	heir, most := "", uint64(0)
	for answers := n.roll(heirs); len(heirs) > 0; heirs = heirs[1:] {
		m := heirs[0]
		if applied := n.heardApplied(m.ID); answers[m.ID] && (heir == "" || applied > most) {
			heir, most = m.ID, applied
		}
	}
	switch {
	case heir != "":
		if !n.handing.CompareAndSwap(false, true) {
			return errTransferring
		}
		err := n.cons.Transfer(heir)
		if err != nil {
			n.handing.Store(false)
		}
		return err
	case id != "":
		return fmt.Errorf("%s does not answer: it cannot lead", id)
	}
	return ErrNoHeir
}

func (n *Node) heardApplied(id string) uint64 {
	n.disc.mu.Lock()
	defer n.disc.mu.Unlock()
	if h := n.disc.heard[id]; h != nil {
		return h.facts.applied
	}
	return 0
}

// Membership is what a node is to its cluster.
type Membership string

const (
	Voter    Membership = "voter"
	NonVoter Membership = "non-voter" // it catches up
	Joining  Membership = "joining"   // it has asked to be taken in
	Removed  Membership = "removed"
)

// Removed reports whether this node has been taken out of its cluster, as far as it knows.
func (n *Node) Removed() bool { return n.removed.Load() }

// Membership tells what this node is to its cluster, as far as it knows.
func (n *Node) Membership() Membership {
	if n.Removed() {
		return Removed
	}
	members, err := n.cons.Members()
	at := slices.IndexFunc(members, func(m Member) bool { return m.ID == n.cfg.ID })
	switch {
	case err == nil && at < 0 && n.joining():
		return Joining
	case at >= 0 && !members[at].Voter:
		return NonVoter
	}
	return Voter
}
