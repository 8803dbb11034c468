package cluster

import (
	"bytes"
	"testing"
	"time"
)

// A node must not conclude that a command in doubt was not executed from a position that a snapshot has jumped to.
func TestBlockedInDoubtSeesNoPositionBeforeTheJump(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		_, there := p.wait(p.b, "BLPOP l 0")
		p.log.set(func(l *fakeLog) { l.copies = nil }) // it falls behind
		p.log.decides(40*ms, once(commitSlowly))
		push := p.start("RPUSH l first second")
		time.Sleep(20 * ms)
		p.cut() // served, and the reply is lost
		if got := <-push; got != "2" {
			t.Fatalf("told %q", got)
		}
		p.expect("[second]", "LRANGE l 0 -1")
		p.connect()
		time.Sleep(100 * ms) // the claim is answered; the log has yet to come
		p.silent(there)

		var snapshot bytes.Buffer
		if err := p.fsm.Snapshot().Encode(&snapshot); err != nil {
			t.Fatal(err)
		}
		if err := p.b.fsm.Restore(&snapshot, p.fsm.Index()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * ms) // machine.Restore goes on a little later
		p.b.restored(p.b.fsm.Position())
		time.Sleep(100 * ms)
		p.got(there, "-INDETERMINATE")
		p.expect("[second]", "LRANGE l 0 -1")
	})
}
