package main

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A spare is a new node, with an empty disk and an unused number, that joins and leaves the running cluster.

// addSpare makes the host of the next spare.
func (f *fleet) addSpare(dir string) (*node, error) {
	f.mu.Lock()
	f.spares++
	number := len(f.nodes) + f.spares
	f.mu.Unlock()
	id := fmt.Sprintf("n%d", number)
	// An address is used again after 50 spares. By then the spare that had it is long gone.
	addr := netip.MustParseAddr(fmt.Sprint(prefix, 40+number%50))
	n := &node{id: id, addr: addr, dir: filepath.Join(dir, id), f: f}
	if err := os.MkdirAll(n.dir, 0o755); err != nil {
		return nil, err
	}
	if err := n.setClock(0); err != nil {
		return nil, err
	}
	var err error
	if n.host, err = f.net.Add(n.addr); err != nil {
		return nil, err
	}
	var members []string
	for _, m := range f.nodes {
		members = append(members, m.at(peerPort))
	}
	n.args = append(n.addresses(), "--join", strings.Join(members, ","))
	return n, nil
}

// dropSpare ends the process and the host of a spare whose membership has ended.
func (f *fleet) dropSpare(n *node) error {
	n.kill()
	return errors.Join(f.net.Remove(n.addr), os.RemoveAll(n.dir))
}

// memberIDs returns the members that the node knows. The value of a member says whether it has a vote.
func (n *node) memberIDs() (map[string]bool, error) {
	reply, err := n.ask("LOCKSTEP", "MEMBERS")
	if err != nil {
		return nil, err
	}
	members, list := map[string]bool{}, []any(nil)
	list, _ = reply.([]any)
	for _, m := range list {
		pairs, _ := m.([]any)
		fields := map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			fields[fmt.Sprint(pairs[i])] = fmt.Sprint(pairs[i+1])
		}
		members[fields["id"]] = fields["voter"] == "1"
	}
	return members, nil
}

// memberTimeout is how long the removal of a member may take after everything is healed.
const memberTimeout = 60 * time.Second

// removed tries to remove a member until no node counts it: the leader may be lost, or may be that member.
func (f *fleet) removed(id string) error {
	var last error
	for deadline := time.Now().Add(memberTimeout); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) { // polls processes
		gone := 0
		for _, n := range f.nodes {
			members, err := n.memberIDs()
			if _, there := members[id]; err == nil && !there {
				gone++
			} else if _, last = n.ask("LOCKSTEP", "REMOVE", id); last != nil {
				last = fmt.Errorf("%s: %w", n.id, last)
			}
		}
		if gone == len(f.nodes) {
			return nil
		}
	}
	return fmt.Errorf("%s is still a member after %v; the last answer: %v", id, memberTimeout, last)
}

// memberFaults returns the faults that change who is a member, while other faults go on.
func memberFaults() []*fault {
	return []*fault{
		{"member comes and goes", "members", func(x *breaker) {
			n, err := x.s.f.addSpare(x.s.dir)
			if err != nil {
				x.fail("%v", err)
				return
			}
			x.note("%s joins", n.id)
			if err := n.start(); err != nil {
				x.fail("%v", err)
			}
			x.wait(max(x.hold, 2*time.Second))
			if x.rng.IntN(3) == 0 {
				x.note("kill -9 %s", n.id)
				n.kill()
			}
			if leader := x.s.f.leader(); leader != nil {
				members, err := leader.memberIDs()
				vote, there := members[n.id]
				x.note("%s is a member: %v, votes: %v, %v", n.id, there, vote, err)
				_, err = leader.ask("LOCKSTEP", "REMOVE", n.id)
				x.note("%s: remove %s: %v", leader.id, n.id, err)
			}
			// If the removal failed, the spare is removed after everything is healed.
			x.s.f.leave(n)
		}},
	}
}

// leave remembers a spare that must be removed.
func (f *fleet) leave(n *node) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leaving = append(f.leaving, n)
}

// sendOff makes sure that no spare is left in a healed cluster. Each spare runs until it is removed, because its vote may be
// needed.
func (e *epoch) sendOff() error {
	f := e.s.f
	f.mu.Lock()
	list := f.leaving
	f.leaving = nil
	f.mu.Unlock()
	if err := e.sendStraysOff(list); err != nil {
		return err
	}
	for _, n := range list {
		// A member with a vote counts for the majority until it is removed.
		if err := f.removed(n.id); err != nil {
			e.fail("%v", err)
			return errUnhealed
		}
		for _, how := range n.crashed() {
			e.fail("%s", how)
		}
		// A spare that never became a member would go on asking to become one.
		n.kill()
		if err := f.removed(n.id); err != nil {
			e.fail("%v", err)
			return errUnhealed
		}
		if err := f.dropSpare(n); err != nil {
			return err
		}
		e.note("%s is gone", n.id)
	}
	return nil
}

// sendStraysOff removes spares of earlier epochs that became members only after they had been removed.
func (e *epoch) sendStraysOff(leaving []*node) error {
	f := e.s.f
	for _, n := range f.nodes {
		members, err := n.memberIDs()
		if err != nil {
			continue // the other nodes know the members, too
		}
		for id := range members {
			is := func(n *node) bool { return n.id == id }
			if slices.ContainsFunc(f.nodes, is) || slices.ContainsFunc(leaving, is) {
				continue
			}
			e.note("%s was taken in after it had gone", id)
			if err := f.removed(id); err != nil {
				e.fail("%v", err)
				return errUnhealed
			}
		}
	}
	return nil
}
