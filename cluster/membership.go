package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/cluster/internal/frame"
	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
	"github.com/lockstep-io/lockstep/cluster/internal/roster"
	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/codec"
)

// Any node passes a request for a change to the leader, and repeats it if the outcome is unknown. A repeated change does no harm.
//
// Adding: a node that answers at the address in the request must have the same id and belong to no other cluster. Only an
// operator may add a node that does not answer. A node with an empty directory never takes the place of a voter with the same id:
// it has forgotten its votes.
//
// Removing: no timer removes a member. A majority of the remaining voters must answer the leader, or the removal could not be
// committed. No flag overrides that. A leader that is to be removed transfers its leadership first, and its successor removes it.

// adminTimeout bounds a change of membership, including the wait for a leader.
const adminTimeout = 8 * time.Second

// adminKind is the kind of a change of membership.
type adminKind byte

const (
	adminAdd    adminKind = 1 // an operator adds a node, or changes the address of a member
	adminRemove adminKind = 2
	adminJoin   adminKind = 3 // the new member asks to be added
)

// adminRequest asks for a change of membership.
type adminRequest struct {
	kind     adminKind
	id, addr string
	// directory is the name of the joining node's data directory; "" if the node does not say. Earlier versions neither send nor
	// read it.
	directory string
}

func (a adminRequest) append(buf []byte) []byte {
	buf = codec.AppendStr(codec.AppendStr(append(buf, byte(a.kind)), a.id), a.addr)
	if a.directory == "" {
		return buf
	}
	return codec.AppendStr(buf, a.directory)
}

func readAdmin(body []byte) (adminRequest, error) {
	if len(body) == 0 {
		return adminRequest{}, frame.ErrMalformed
	}
	r := codec.Reader{B: body[1:]}
	a := adminRequest{kind: adminKind(body[0]), id: string(r.Bytes()), addr: string(r.Bytes())}
	if len(r.B) > 0 {
		a.directory = string(r.Bytes())
	}
	if r.Bad || a.kind < adminAdd || a.kind > adminJoin {
		return adminRequest{}, frame.ErrMalformed
	}
	return a, nil
}

// Add adds a node to the cluster, without a vote until it has caught up, or changes a member's address.
func (n *Node) Add(id, peerAddr string) error {
	return n.administer(adminRequest{kind: adminAdd, id: id, addr: peerAddr})
}

// Remove removes a member from the cluster.
func (n *Node) Remove(id string) error { return n.administer(adminRequest{kind: adminRemove, id: id}) }

// check fails if the request is invalid by itself. The leader checks again, because a peer may send anything.
func (a adminRequest) check() error {
	if a.kind == adminRemove {
		return nil // any id may be removed
	}
	if err := roster.CheckID(a.id); err != nil {
		return err
	}
	if roster.CheckAddress(a.addr) != nil {
		return fmt.Errorf("%q is no peer address: want host:port", roster.Clip(a.addr))
	}
	if roster.ReachesNobody(a.addr) {
		return fmt.Errorf("%s stands for every address: give the one under which the other nodes reach %s", a.addr, a.id)
	}
	if a.directory != "" && roster.CheckID(a.directory) != nil {
		return fmt.Errorf("%q is no name of a data directory", roster.Clip(a.directory))
	}
	return nil
}

// administer has the present leader make a change, and waits for a leader if there is none.
func (n *Node) administer(a adminRequest) error {
	if err := a.check(); err != nil {
		return err
	}
	if n.cons.Fixed() {
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
			if err == nil || again && a.kind == adminRemove && errors.Is(err, ErrNoMember) {
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

// administerBy makes a change here if this node leads, and otherwise asks the leader.
func (n *Node) administerBy(ctx context.Context, rt route, a adminRequest) error {
	if rt.seq != nil {
		return n.administerHere(ctx, a)
	}
	reply, err := n.ask(ctx, rt.link, forward.Admin, a.append(nil))
	if err != nil {
		return err
	}
	if why, is := strings.CutPrefix(reply.Str, refusalCode); is && reply.IsError() {
		return refusal(why)
	}
	if why, is := strings.CutPrefix(reply.Str, noMemberCode); is && reply.IsError() {
		return fmt.Errorf("%w%s", ErrNoMember, strings.TrimPrefix(why, ErrNoMember.Error()))
	}
	if reply.IsError() {
		return errors.New(strings.TrimPrefix(reply.Str, "ERR "))
	}
	return nil
}

// refusal is the error of a change that contradicts the configuration, so that it is useless to ask again.
type refusal string

func (r refusal) Error() string { return string(r) }

func contradicts(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// An error in a reply to another node begins with one of these codes if that node has to recognize the error.
const (
	refusalCode  = "REFUSED "
	noMemberCode = "NOMEMBER " // ErrNoMember
)

// serveAdmin makes a change that another node forwards to this one, if this node leads.
func (n *Node) serveAdmin(f frame.Frame, p *peerConn) error {
	a, err := readAdmin(f.Body)
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
		// If the link is lost, the asking node asks again.
		_ = p.out.Send(forward.Result, f.ID, func(b []byte) []byte {
			switch {
			case err == nil:
				return forward.AppendReplies(b, []store.Reply{store.OK})
			case errors.Is(err, errNotExecuted):
				return append(b, forward.NotExecuted)
			case errors.Is(err, errUnknown):
				return append(b, forward.Unknown)
			}
			code := "ERR "
			if _, is := errors.AsType[refusal](err); is {
				code = refusalCode
			} else if errors.Is(err, ErrNoMember) {
				code = noMemberCode
			}
			return forward.AppendReplies(b, []store.Reply{store.Err(store.Error(code + err.Error()))})
		})
	}()
	return nil
}

// administerHere makes a change on the leader, which this node must be.
func (n *Node) administerHere(ctx context.Context, a adminRequest) error {
	if err := a.check(); err != nil {
		return err
	}
	if a.kind == adminRemove {
		return n.removeHere(ctx, a.id)
	}
	return n.addHere(ctx, a)
}

// addHere makes a node a member without a vote, or changes the address of a member.
func (n *Node) addHere(ctx context.Context, a adminRequest) error {
	found, reached := n.peers.Visit(a.addr)
	switch {
	case reached && found.ID != a.id:
		return contradicts("at %s there is %s, not %s: give the address under which the other nodes reach %s (--peer-advertise)", a.addr, found.ID, a.id, a.id)
	case reached && found.Cluster != "" && n.cons.Cluster() != "" && found.Cluster != n.cons.Cluster():
		return contradicts("%s at %s is a member of another cluster: start it with an empty data directory and --join", a.id, a.addr)
	case !reached && a.kind == adminJoin:
		return fmt.Errorf("the leader, %s, cannot reach %s at %s: that must be the address under which the other nodes reach it (--peer-advertise)", n.cfg.ID, a.id, a.addr)
	}
	if err := n.removeForgetful(ctx, a); err != nil {
		return err
	}
	return n.cons.Reconfigure(ctx, func(members []raftnode.Member) (raftnode.Change, error) {
		for _, m := range members {
			if m.PeerAddr == a.addr && m.ID != a.id {
				return raftnode.Change{}, contradicts("%s is the peer address of %s: remove that one first, or give another address", a.addr, m.ID)
			}
		}
		at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == a.id })
		switch {
		case at < 0 && len(members) >= raftnode.MaxMembers:
			return raftnode.Change{}, contradicts("the cluster has %d members, and may not have more: take one out first: lockstep remove", len(members))
		case at < 0:
			return raftnode.Change{Kind: raftnode.AddNonVoter, ID: a.id, Addr: a.addr}, nil
		case a.kind == adminJoin && members[at].Voter:
			// The node has forgotten its votes and the entries that it acknowledged.
			return raftnode.Change{}, contradicts("%s is a voting member already, and this node has an empty data directory: choose another --id, with a directory of its own, or take the old one out first: lockstep remove %s", a.id, a.id)
		case members[at].PeerAddr == a.addr:
			return raftnode.Change{}, raftnode.ErrNoChange
		case a.kind == adminJoin:
			return raftnode.Change{}, contradicts("%s is the id of the member at %s: choose another --id, with a directory of its own, or take that one out first: lockstep remove %s", a.id, members[at].PeerAddr, a.id)
		case !reached:
			return raftnode.Change{}, fmt.Errorf("nobody answers at %s: start %s there before its address is changed", a.addr, a.id)
		case members[at].Voter:
			return raftnode.Change{Kind: raftnode.AddVoter, ID: a.id, Addr: a.addr}, nil
		}
		return raftnode.Change{Kind: raftnode.AddNonVoter, ID: a.id, Addr: a.addr}, nil
	})
}

// removeForgetful removes a non-voter that has lost its disk and asks to join again. A node without a vote has promised nothing.
func (n *Node) removeForgetful(ctx context.Context, a adminRequest) error {
	if a.kind != adminJoin || a.directory == "" || n.cons.Recognize(a.id, a.directory) == nil {
		return nil
	}
	return n.cons.Reconfigure(ctx, func(members []raftnode.Member) (raftnode.Change, error) {
		if !slices.Contains(members, raftnode.Member{ID: a.id, PeerAddr: a.addr}) {
			return raftnode.Change{}, raftnode.ErrNoChange // no such non-voter: addHere says what to do
		}
		return raftnode.Change{Kind: raftnode.RemoveMember, ID: a.id, Addr: a.addr}, nil
	})
}

// removeHere removes a member. If that is this node, removeHere only transfers leadership, and the caller asks the next leader
// (errNotExecuted).
func (n *Node) removeHere(ctx context.Context, id string) error {
	members, err := n.cons.Members()
	if err != nil {
		return errNotExecuted
	}
	up := n.peers.Answering(members)
	if id == n.cfg.ID {
		if _, err := removal(members, up, id); err != nil {
			return err
		}
		if err := n.transferHere(""); err != nil {
			return fmt.Errorf("%s leads, and could not hand over: %w", id, err)
		}
		return errNotExecuted
	}
	return n.cons.Reconfigure(ctx, func(members []raftnode.Member) (raftnode.Change, error) { return removal(members, up, id) })
}

// removal returns the change that removes a member. A voter may go only if a majority of the other voters is alive.
func removal(members []raftnode.Member, alive map[string]bool, id string) (raftnode.Change, error) {
	at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == id })
	if at < 0 {
		return raftnode.Change{}, fmt.Errorf("%w: %q", ErrNoMember, id)
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
			return raftnode.Change{}, fmt.Errorf("%s is the only voting member: a cluster cannot be without one", id)
		case up <= voters/2:
			return raftnode.Change{}, fmt.Errorf("without %s the cluster would have no majority: of the %d voting members that stay, %s does not answer; start or remove that one first", id, voters, strings.Join(down, ", "))
		}
	}
	return raftnode.Change{Kind: raftnode.RemoveMember, ID: id, Addr: members[at].PeerAddr}, nil
}

// yieldUntil hands leadership to a voter that should lead rather than this node, until ctx, the context of a term, ends.
func (n *Node) yieldUntil(ctx context.Context) {
	before, over := n.yielding, make(chan struct{})
	n.yielding = over
	n.work.Go(func() {
		defer close(over)
		if before != nil {
			<-before // the context of the term before has ended
		}
		n.yielder.Watcher, n.yielder.After, n.yielder.Position, n.yielder.Transfer = n.peers, n.cfg.YieldAfter, n.position, n.transferHere
		n.yielder.Run(ctx)
	})
}

// transferHere transfers leadership to the voter id, if it answers. If id is empty, it chooses the answering voter that has
// applied most entries, one with Wish.Never only if no other answers.
func (n *Node) transferHere(id string) error {
	members, err := n.cons.Members()
	if err != nil {
		return err
	}
	if id == n.cfg.ID {
		return nil
	}
	var heirs []raftnode.Member
	for _, m := range members {
		if m.Voter && m.ID != n.cfg.ID && (id == "" || m.ID == id) {
			heirs = append(heirs, m)
		}
	}
	if id != "" && len(heirs) == 0 {
		return ErrNoSuchMember
	}
	if id != "" && n.peers.Wish(id).Never {
		return fmt.Errorf("%s runs with --never-lead: it would hand over again at once", id)
	}
	heir, most, never := "", uint64(0), false
	for answers := n.peers.Answering(heirs); len(heirs) > 0; heirs = heirs[1:] {
		m := heirs[0]
		applied, shuns := n.peers.Applied(m.ID), n.peers.Wish(m.ID).Never
		if answers[m.ID] && (heir == "" || never && !shuns || never == shuns && applied > most) {
			heir, most, never = m.ID, applied, shuns
		}
	}
	switch {
	case heir != "":
		if !n.handing.CompareAndSwap(false, true) {
			return raftnode.ErrTransferring
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

// Membership is the role of a node in its cluster.
type Membership string

const (
	Voter    Membership = "voter"
	NonVoter Membership = "non-voter" // it is catching up
	Joining  Membership = "joining"   // it asks to become a member
	Removed  Membership = "removed"
)

// Removed reports whether this node has been removed from its cluster, as far as it knows.
func (n *Node) Removed() bool { return n.peers.Removed() }

// Learner reports whether this node wants no vote (Wish).
func (n *Node) Learner() bool { return n.cfg.Wish.Learner }

// Membership returns the role of this node in its cluster, as far as it knows. Without a known role it returns Voter.
func (n *Node) Membership() Membership {
	if n.Removed() {
		return Removed
	}
	members, err := n.cons.Members()
	at := slices.IndexFunc(members, func(m raftnode.Member) bool { return m.ID == n.cfg.ID })
	switch {
	case err == nil && at < 0 && n.cons.Joining():
		return Joining
	case at >= 0 && !members[at].Voter:
		return NonVoter
	}
	return Voter
}
