package cluster

import (
	"testing"

	"github.com/lockstep-io/lockstep/store"
)

// library is an engine with one function, TAKE, which keeps in a local of its library whether it was called.
type library struct {
	stopper
	taken     bool
	ran       bool // since Settle
	forgotten int
}

func (l *library) Forget() { l.taken, l.forgotten = false, l.forgotten+1 }
func (l *library) Settle() { l.ran = false }
func (l *library) Undo()   { l.taken = l.taken && !l.ran }

func (l *library) take(c *store.Ctx) store.Reply {
	if l.taken {
		return store.Int(0)
	}
	l.taken, l.ran = true, true
	c.SetString(0, []byte("taken"), "yes", 0)
	return store.Int(1)
}

// What a function's run leaves in its locals is gone when that run is undone, or when its node loses and regains leadership.
func TestFunctionsOfABatchThatBeginsAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := &library{}
		n := newTestNode(t, append(badCommands, store.Command{Name: "take", Arity: 1, Flags: store.Scripting, Run: l.take})...)
		n.cfg.Scripts = l
		n.lead()
		n.expectTogether([]string{"1", "-ERR", "0"}, "TAKE", "FILL huge 9", "TAKE")
		l.taken = false
		if replies := n.Submit(n.txn(nil, "TAKE", "FILL huge 9"), nil); !replies[0].IsError() || l.taken {
			t.Errorf("a transaction that is undone: %q, taken: %t", text(replies), l.taken)
		}
		n.expect("1", "TAKE")
		n.expectTogether([]string{"OK", "-ERR"}, "SET k v", "FILL huge 9")
		if !l.taken {
			t.Error("a function that had run before the batch has lost what it kept")
		}
		n.depose()
		n.lead()
		n.expect("1", "TAKE")
		if l.forgotten != 2 {
			t.Errorf("forgotten %d times", l.forgotten)
		}
	})
}
