package cluster

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// blockAs begins a blocking command of the user "waits". sent counts its sendings, at each of which users gives the version of
// the users.
func (p *pair) blockAs(node *Node, line string, users func(sent int32) uint64) (done chan string, sent *atomic.Int32) {
	done, sent = make(chan string, 2), &atomic.Int32{}
	b := &Blocked{Call: p.call(line)[0], Done: func(r store.Reply) { done <- text([]store.Reply{r}) }}
	b.Caller = func() (string, uint64) { return store.CallName("waits"), users(sent.Add(1)) }
	node.Block(b)
	node.Flush()
	synctest.Wait()
	return done, sent
}

// users returns the present version of the users.
func (p *pair) users() (version uint64) {
	p.fsm.View(func(s *store.Store, _ uint64) { version = s.AccountsVersion() })
	return version
}

// deleteMany deletes more users than the leader can remember as deleted.
func (p *pair) deleteMany() {
	p.t.Helper()
	var made, deleted []string
	for i := range 1001 {
		made, deleted = append(made, fmt.Sprint("MAKEUSER u", i)), append(deleted, fmt.Sprint("DELETEUSER u", i))
	}
	for _, lines := range [][]string{made, deleted} {
		for _, r := range p.Submit(p.call(lines...), nil) {
			if r.IsError() {
				p.t.Fatal(r.Str)
			}
		}
	}
}

// A client waits on though more other users are deleted than the leader can remember, and ends when its own user is deleted.
func TestBlockedWhileManyUsersGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, makeUser, deleteUser)
		p.expect("OK", "MAKEUSER waits")
		old := p.users()
		here, _ := p.blockAs(p.Node, "BLPOP l 0", func(int32) uint64 { return old })
		there, _ := p.blockAs(p.b, "BLPOP l 0", func(int32) uint64 { return old })
		last, _ := p.blockAs(p.b, "BLPOP l 0", func(int32) uint64 { return old })
		p.deleteMany()
		p.expect("2", "RPUSH l a b")
		p.got(here, "[l a]")
		p.got(there, "[l b]")
		p.expect("OK OK 1", "DELETEUSER waits", "MAKEUSER waits", "RPUSH l c")
		p.got(last, "-NOPERM")
	})
}

// The next leader does not know which users were deleted. The client waits on, because its node names a newer version of the
// users.
func TestBlockedAtALeaderThatForgotUsers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t, makeUser, deleteUser)
		p.expect("OK", "MAKEUSER waits")
		old := p.users()
		var present uint64
		late := func(sent int32) uint64 { // the node hears of the deletions when it has sent the command again
			if sent <= 2 {
				return old
			}
			return present
		}
		here, sentHere := p.blockAs(p.Node, "BLPOP l 0", late)
		there, sentThere := p.blockAs(p.b, "BLPOP l 0", late)
		p.deleteMany()
		present = p.users()
		p.changeLeader()
		time.Sleep(time.Second)
		p.silent(here)
		p.silent(there)
		p.expect("2", "RPUSH l a b")
		p.got(here, "[l a]")
		p.got(there, "[l b]")
		if a, b := sentHere.Load(), sentThere.Load(); a != 3 || b != 3 {
			t.Errorf("sent %d and %d times, want 3", a, b)
		}
	})
}
