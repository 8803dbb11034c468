package server

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// fakeBlocked are the blocking commands of a fakeBackend. Its mu guards the fields.
type fakeBlocked struct {
	waiting []*cluster.Blocked
	waited  map[*cluster.Blocked]bool         // those that have begun to wait
	unread  map[*cluster.Blocked]*store.Reply // the commands that lookLater keeps, each with the reply that Unblock gave it
	forgets atomic.Bool                       // the leader knows no tickets; mu need not be held
}

// Block answers a command at once if one of its keys has an element. Otherwise it keeps the command until a key has one
// (serveWaiting).
func (f *fakeBackend) Block(b *cluster.Blocked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.begun.Add(1)
	if f.unread != nil {
		f.unread[b] = nil
		return
	}
	f.look(b)
}

// look evaluates a command for the first time. The caller holds mu.
func (f *fakeBackend) look(b *cluster.Blocked) {
	f.waiting = append(f.waiting, b)
	f.serveWaiting()
	if ms, ok := store.WaitTimeout(b.Call.Cmd, b.Call.Args); ok && ms > 0 {
		time.AfterFunc(time.Duration(ms)*time.Millisecond, func() { f.Unblock(b, store.WaitTimedOut, nil) })
	}
}

// lookLater makes the backend keep all blocking commands from now on without evaluating them. The function evaluate evaluates
// them once, and ends this.
func (f *fakeBackend) lookLater() (evaluate func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unread = map[*cluster.Blocked]*store.Reply{}
	return func() {
		f.mu.Lock()
		unread := f.unread
		f.unread = nil
		for b := range unread {
			f.look(b)
		}
		f.mu.Unlock()
		for b, reply := range unread {
			if reply != nil {
				f.Unblock(b, *reply, nil)
			}
		}
	}
}

// unreadEnds counts the commands that lookLater keeps and for which Unblock has been called.
func (f *fakeBackend) unreadEnds() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, reply := range f.unread {
		if reply != nil {
			n++
		}
	}
	return n
}

// serveWaiting tries the waiting commands in order. The caller holds mu.
func (f *fakeBackend) serveWaiting() {
	kept := f.waiting[:0]
	for _, b := range f.waiting {
		now := store.Time{Lease: f.now.Load()/1e6 + 1, Wall: f.clock().UnixMicro()}
		txn := f.store.Begin(now, f.seq+1, store.Env{})
		ctx := &store.Ctx{Txn: txn, Cmd: b.Call.Cmd, Args: b.Call.Args, DB: b.Call.DB, RESP: b.Call.RESP, Waits: f.waited[b]}
		r, denied := ctx.NoRoom()
		if !denied {
			r = b.Call.Cmd.Run(ctx)
		}
		if ctx.Wait != nil {
			kept = append(kept, b)
			f.waited[b] = true
			if waits := b.Waits; waits != nil {
				b.Waits = nil
				waits()
			}
			continue
		}
		f.seq++
		if err := f.store.Apply(txn.Writes().Bytes(), f.seq, f.hub); err != nil {
			panic(err)
		}
		b.Done(r)
	}
	f.waiting = kept
}

// take removes a waiting command. It returns false if the command does not wait any more.
func (f *fakeBackend) take(b *cluster.Blocked) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, w := range f.waiting {
		if w == b {
			f.waiting = append(f.waiting[:i], f.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// giveUp is Env.GiveUp. The caller holds mu.
func (f *fakeBackend) giveUp(db int, key, owner string) {
	f.waiting = slices.DeleteFunc(f.waiting, func(b *cluster.Blocked) bool {
		gives := !f.forgets.Load() && b.Call.DB == db && string(b.Call.Args[1]) == key && string(b.Call.Args[2]) == owner && store.TakesTicket(b.Call.Cmd, b.Call.Args)
		if gives {
			b.Done(store.WaitTimedOut)
		}
		return gives
	})
}

func (f *fakeBackend) Unblock(b *cluster.Blocked, reply store.Reply, ended func(bool)) {
	f.mu.Lock()
	if _, unread := f.unread[b]; unread {
		f.unread[b] = &reply
		f.mu.Unlock()
		return
	}
	f.mu.Unlock()
	ok := f.take(b)
	if ok {
		b.Done(reply)
	}
	if ended != nil {
		ended(ok)
	}
}

func (f *fakeBackend) Abandon(b *cluster.Blocked) {
	f.take(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.unread, b)
}

// blockedClients is how many commands wait.
func (f *fakeBackend) blockedClients() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiting)
}

func (f *fakeBackend) Alone(_ *cluster.Client, kind cluster.OwnKind) (leave func(), ok bool) {
	if f.leaves.Load() {
		return nil, false
	}
	f.asked.Add(1)
	f.alone[kind].Lock()
	return func() {
		f.asked.Add(-1)
		f.alone[kind].Unlock()
	}, true
}

func (f *fakeBackend) Pace(*cluster.Client) (done func(), ok bool) {
	f.paced.Add(1)
	return func() {}, true
}
