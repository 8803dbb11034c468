package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/raftfsm"
	"github.com/lockstep-io/lockstep/store"
)

// takes appends an entry to the log. The entry comes from another leader, and sets a key to a string.
func (l *fakeLog) takes(key, value string) {
	l.otherLeader(func(txn *store.Txn) { txn.SetString(0, []byte(key), value, 0) })
}

// J3: updates were lost when two leaders counted on from the same number. Here no token is handed out twice.
func TestJ3NoTokenTwice(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run(fmt.Sprint("carried=", carried), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newLinked(t)
				node := p.Node
				if carried {
					node = p.b
				}
				owners := map[string]string{}
				hand := func(token, to string) {
					if other := owners[token]; other != "" {
						t.Errorf("token %s was handed to %s and to %s", token, other, to)
					}
					owners[token] = to
				}
				last := 0
				for round := range 12 {
					// An entry of another leader, evaluated on the same state, comes before the next proposal, which may follow it or
					// be lost.
					v := []verdict{applyLater, forget, supersedeLater}[round%3]
					first := once(v)
					p.log.decides(0, func(e raftfsm.Entry) verdict {
						fate := first(e)
						if fate == v {
							p.log.set(func(l *fakeLog) { l.takes("token", fmt.Sprint(last+1)) })
							hand(fmt.Sprint(last+1), "another leader's client")
						}
						return fate
					})
					got := p.doOn(node, "INCR token")
					hand(got, fmt.Sprint("ours, round ", round))
					if got != fmt.Sprint(last+2) {
						t.Fatalf("round %d: token %s after %d", round, got, last+1)
					}
					last += 2
				}
				p.expect(fmt.Sprint(last), "GET token")
			})
		})
	}
}

// J4: after a restart, reads found nothing, or an earlier state. Here a node answers no read before it has applied all
// committed entries.
func TestJ4NoReadBeforeReplay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		start := time.Now()
		n.log.set(func(l *fakeLog) {
			// The entry is on disk, but not applied yet.
			l.limbo = append(l.limbo, limboEntry{lockedBy("me"), true})
			l.barrier = func() error {
				if time.Since(start) < time.Second {
					return errDeposed
				}
				return nil
			}
		})
		read, write := n.start("GET lock"), n.start("SET lock you NX")
		go n.elect()
		if got, took := <-read, time.Since(start); got != "me" || took < time.Second {
			t.Errorf("read %q after %v", got, took)
		}
		if got := <-write; got != "nil" {
			t.Errorf("the lock was granted again: %q", got)
		}
	})
}

// lockedBy returns the first entry of a log: it takes a lock.
func lockedBy(owner string) []byte {
	txn := store.New().Begin(store.Time{Lease: 1}, 1, store.Env{})
	txn.SetString(0, []byte("lock"), owner, 0)
	e := raftfsm.Entry{Lease: 1, Proposer: 99, Writes: txn.Writes().Bytes()}
	return e.Append(nil)
}

// J5: a leader had been replaced without knowing it. It answered a read with the earlier owner of a lock.
func TestJ5NoStaleRead(t *testing.T) {
	for _, carried := range []bool{false, true} {
		t.Run(fmt.Sprint("carried=", carried), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newLinked(t)
				node := p.Node
				if carried {
					node = p.b
				}
				p.expect("OK", "SET lock old-owner")
				p.log.set(func(l *fakeLog) {
					l.verify = unreachable
					l.barrier = unreachable
				})
				reply := p.startMany(node, "GET lock")
				time.Sleep(500 * ms)
				synctest.Wait()
				select {
				case got := <-reply:
					t.Errorf("a leader that nobody follows answered %q", got)
				default:
				}
				p.log.set(func(l *fakeLog) {
					l.takes("lock", "new-owner")
					l.verify, l.barrier = nil, nil
				})
				if got := <-reply; got != "new-owner" {
					t.Errorf("read %q", got)
				}
			})
		})
	}
}

// J16: a node read a value, was paused, and answered after other nodes had changed it. Here the node is even elected again meanwhile.
func TestJ16NoStaleReadAfterPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newTestNode(t)
		n.lead()
		n.expect("OK", "SET lock old-owner PX 5000")
		n.log.set(func(l *fakeLog) {
			l.verify = func() error {
				time.Sleep(10 * time.Second) // the pause
				l.set(func(l *fakeLog) {
					l.verify = nil
					l.term += 2
					var seq uint64
					l.fsm.View(func(_ *store.Store, s uint64) { seq = s })
					e := raftfsm.Entry{Prev: seq, Lease: 1, Proposer: 99}
					txn := store.New().Begin(store.Time{Lease: 1}, seq+1, store.Env{})
					txn.SetString(0, []byte("lock"), "new-owner", 0)
					e.Writes = txn.Writes().Bytes()
					// The entry is in this node's log, but not applied yet.
					l.limbo = append(l.limbo, limboEntry{e.Append(nil), true})
				})
				return nil
			}
		})
		n.expect("new-owner", "GET lock")
	})
}

// A deposed leader does not call a backup complete, even if it leads again.
func TestBackupOfADeposedLeaderIsNotComplete(t *testing.T) {
	for what, verify := range map[string]func(*fakeLog) error{
		"deposed":       func(*fakeLog) error { return errDeposed },
		"elected again": func(l *fakeLog) error { l.set(func(l *fakeLog) { l.term += 2 }); return nil },
	} {
		for _, asked := range []string{"the leader", "a follower"} {
			t.Run(what+", "+asked+" is asked", func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newLinked(t)
					node := p.Node
					if asked == "a follower" {
						node = p.b
					}
					p.expect("OK", "SET lock owner")
					whole := func() bool {
						r, complete, err := node.Backup()
						if err != nil {
							t.Fatal(err)
						}
						r.Close()
						return complete
					}
					if !whole() {
						t.Error("the backup of a leader is not complete")
					}
					p.log.set(func(l *fakeLog) { l.verify = func() error { return verify(l) } })
					if whole() {
						t.Error("the backup is called complete")
					}
				})
			})
		}
	}
}

// TestWhatWasFoundExpiredStaysSo: a lock that a read has found expired is not held again after a change of leader.
func TestWhatWasFoundExpiredStaysSo(t *testing.T) {
	large := "SET large " + strings.Repeat("x", maxBatchBytes+1)
	for _, with := range []string{"SCRIPT 10ms|GET lock", "LOOK 10|GET lock", "LOOK 10|" + large + "; GET lock", "LOOK 10|EXISTS lock", "LOOK 10|DBSIZE"} {
		with, read, _ := strings.Cut(with, "|")
		t.Run(with+" "+read[:min(len(read), 20)], func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				look := store.Command{Name: "look", Arity: 2, Flags: store.ReadOnly | store.Fast, Run: func(c *store.Ctx) store.Reply {
					time.Sleep(10 * ms)
					return store.OK
				}}
				n := newTestNode(t, scriptCommand, look, renewCommand)
				n.lead()
				n.expect("OK", "SET lock me NX PX 1000")
				time.Sleep(985 * ms)
				held := map[string]string{"EXISTS lock": "1", "DBSIZE": "2"}[read]
				if got := n.together(with, read); got[1] == held || slices.Contains(strings.Fields(strings.Trim(got[1], "[]")), "lock") { // its batch begins 995 ms after the lease did
					t.Fatal(got)
				}
				// the leader dies at once; nothing is appended any more
				proposals, _ := n.log.count()
				defer func() { after, _ := n.log.count(); t.Log(with, "entries", proposals, after, n.expired()) }()
				n.log.set(func(l *fakeLog) { l.contact = time.Now() })
				n.depose()
				time.Sleep(700 * ms)
				n.lead()
				if after := n.do("GET lock"); after != "nil" {
					t.Errorf("%s: read nil before, %q after the change of leader; renewal told %s", with, after, n.do("RENEW lock me 1000"))
				}
			})
		})
	}
}
