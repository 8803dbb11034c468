package cluster

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/lockstep-io/lockstep/cluster/brake"
)

// When memory is short, a write that copies data waits for the running hash and cancels a slow backup.
func TestEarlierStatesAreLetGo(t *testing.T) {
	defer brake.Set(0, 0)
	bubble(t, func(t *testing.T) {
		n := newEphemeralNode(t, badCommands...)
		n.expect("OK", "FILL k 2")
		r, complete, err := n.Backup()
		if err != nil || !complete {
			t.Fatal(complete, err)
		}
		defer r.Close()
		piece := make([]byte, 1000)
		if _, err := io.ReadFull(r, piece); err != nil {
			t.Fatal(err)
		}
		n.expect("2097152", "SETRANGE k 0 y") // memory is not short yet
		if _, err := io.ReadFull(r, piece); err != nil {
			t.Fatal(err)
		}
		hash := &earlier{over: make(chan struct{}), giveUp: func() {}}
		n.Node.earlier.hashed.Store(hash)
		synctest.Wait() // what the last command has woken must not wait for the state's lock while SETRANGE waits for the hash
		brake.Set(1, 0)
		reply := n.start("SETRANGE k 0 z")
		synctest.Wait()
		select {
		case <-reply:
			t.Error("it did not wait for the hash")
		default:
		}
		close(hash.over)
		if got := <-reply; got != "2097152" {
			t.Error(got)
		}
		if _, err := io.ReadAll(r); !errors.Is(err, errBackupGivenUp) {
			t.Errorf("the backup: %v", err)
		}
		synctest.Wait()
		if n.Node.earlier.backup.Load() != nil {
			t.Error("the state of the backup is kept")
		}
	})
}
