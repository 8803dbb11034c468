package cluster

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/call"
	"github.com/lockstep-io/lockstep/cluster/internal/forward"
	"github.com/lockstep-io/lockstep/store"
)

// newBusyPair returns a pair whose link is cut. On its leader the command RUN runs as a script that SCRIPT KILL can end.
func newBusyPair(t *testing.T) *pair {
	l := &limited{limit: time.Minute, kill: make(chan struct{})}
	p := newPair(t, store.Command{Name: "run", Arity: 2, Flags: store.Scripting, Run: l.run})
	p.cfg.Scripts, p.b.cfg.Scripts = l, &killer{"n2"}
	p.SetBusyThreshold(time.Second)
	p.cut()
	synctest.Wait()
	return p
}

// reach gives the second node a link, and does not wait until it is in use. The function cut breaks the link.
func (p *pair) reach() (cut func()) {
	near, far := net.Pipe()
	cut = func() {
		if err := far.Close(); err != nil {
			p.t.Error(err)
		}
	}
	p.t.Cleanup(cut)
	p.attach(near, far)
	return cut
}

// A follower that gets its link while a script runs answers its clients BUSY at once.
func TestFollowerConnectsDuringAScript(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBusyPair(t)
		script := p.start("RUN 30s")
		time.Sleep(2 * time.Second)
		before := p.startMany(p.b, "SET before x")
		p.silent(before)
		p.reach()
		p.got(before, "-BUSY")
		p.got(p.startMany(p.b, "SET k v", "GET k"), "-BUSY -BUSY")
		if got := p.b.Submit(p.txn(nil, "SET k v"), nil); got[0].Str != string(store.ErrExecAbort(store.ErrBusyScript)) {
			t.Errorf("EXEC: %v", got)
		}
		if got := p.b.RunningFunction(0); got.Kind != store.Null {
			t.Errorf("FUNCTION STATS: %v", got)
		}
		p.silent(script)
		if got := text([]store.Reply{p.b.KillScript(0)}); got != "OK" {
			t.Errorf("SCRIPT KILL: %s", got)
		}
		p.got(script, "-ERR")
		time.Sleep(2 * retryPause)
		if got := p.doOn(p.b, "SET k v", "GET before"); got != "OK nil" {
			t.Errorf("after the script: %s", got)
		}
	})
}

// A follower has heard BUSY from its leader. It stops answering BUSY once the link is lost: its clients then wait for a leader.
func TestBusyLinkIsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBusyPair(t)
		script := p.start("RUN 3s")
		time.Sleep(2 * time.Second)
		cut := p.reach()
		p.got(p.startMany(p.b, "SET k v"), "-BUSY")
		cut()
		time.Sleep(2 * retryPause)
		waits := p.startMany(p.b, "SET k v")
		p.silent(waits)
		<-script
		p.connect()
		p.got(waits, "OK")
	})
}

// A follower whose link was refused with BUSY lets wait what the leader would: a write that is sent again, and a Confirm.
func TestFollowerLetsThePatientWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBusyPair(t)
		p.connect()
		script := p.start("RUN 2s")
		synctest.Wait()
		write := p.startMany(p.b, "INCR counter")
		synctest.Wait()
		p.cut()
		time.Sleep(1500 * ms)
		p.reach()
		p.got(p.startMany(p.b, "GET counter"), "-BUSY")
		confirm := make(chan string, 1)
		go func() {
			calls := []Call{{Cmd: call.Confirm, Args: [][]byte{[]byte(call.ConfirmName), appendGrants(nil, grants{})}, RESP: heldRESP, User: store.SystemUser}}
			confirm <- text(p.b.newCarried(p.b.cfg.FailoverWait, nil, p.b.queue.Number(), nil, calls, nil).run())
		}()
		p.silent(write)
		p.silent(confirm)
		<-script
		time.Sleep(2 * retryPause)
		p.got(write, "1")
		p.got(confirm, "[]")
	})
}

// A node of version 0.1.0 is not told BUSY in answer to its claim. It asks again until the script has ended.
func TestOlderFollowerConnectsDuringAScript(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBusyPair(t)
		p.b.cfg.speaks.Minor = 0 // version 0.1.0
		script := p.start("RUN 3s")
		time.Sleep(2 * time.Second)
		waits := p.startMany(p.b, "SET k v")
		p.reach()
		p.silent(waits)
		if p.b.busyLink.Load() != nil {
			t.Error("the leader has said BUSY")
		}
		<-script
		time.Sleep(2 * retryPause)
		p.got(waits, "OK")
	})
}

// While a script runs, the leader answers a claim of version 0.1.0 as it always did: not executed.
func TestAnswerToTheClaimOfAnOlderNode(t *testing.T) {
	for minor, want := range map[byte]error{0: errNotExecuted, forward.Minor: nil} {
		bubble(t, func(t *testing.T) {
			p := newBusyPair(t)
			p.b.cfg.speaks.Minor = minor
			p.start("RUN 3s")
			time.Sleep(2 * time.Second)
			near, far := net.Pipe()
			go p.serveForward(far)
			l, r, err := p.b.connectOver(near)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Fail()
			go l.Read(r)
			answers := make(chan error, 1)
			l.Call(forward.Claim, func(buf []byte) []byte { return forward.AppendClaim(buf, p.b.boot, 0) }, func(body []byte, _ error) {
				_, err := forward.ReadResult(body, nil)
				answers <- err
			})
			if got := <-answers; got != want {
				t.Errorf("minor version %d: %v, want %v", minor, got, want)
			}
		})
	}
}
