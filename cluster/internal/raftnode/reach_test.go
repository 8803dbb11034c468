package raftnode

import (
	"context"
	"strings"
	"testing"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
)

// TestFounderOfEveryAddress: a node founds no cluster under an address such as 0.0.0.0, but can then do so under another address.
func TestFounderOfEveryAddress(t *testing.T) {
	cfg := memberConfig(t, t.TempDir())
	for _, addr := range []string{"0.0.0.0:7379", "[::]:7379", ":7379"} {
		cfg.Addr = addr
		if _, err := Open(cfg, nil, Hooks{}); err == nil || !strings.Contains(err.Error(), "--peer-advertise") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	cfg.Addr = "127.0.0.1:7379"
	openMember(t, cfg)
}

// TestMemberOfEveryAddress: a cluster whose only member has the address 0.0.0.0 takes in no second member before the first has a
// real address.
func TestMemberOfEveryAddress(t *testing.T) {
	cfg, log := memberConfig(t, t.TempDir()), new(clustertest.Log)
	cfg.Addr, cfg.Logger = "0.0.0.0:7379", log.Logger()
	cfg.Peers = []Peer{{ID: "n1", Addr: cfg.Addr}} // as an earlier version writes it
	r, _, _ := openMember(t, cfg)
	if !strings.Contains(log.String(), "lockstep add n1") {
		t.Error("there is no warning")
	}
	change := func(c Change) error {
		for {
			err := r.Reconfigure(context.Background(), func([]Member) (Change, error) { return c, nil })
			if err == nil || !strings.Contains(err.Error(), ErrNotExecuted.Error()) {
				return err
			}
		}
	}
	for _, kind := range []changeKind{AddNonVoter, AddVoter} {
		if err := change(Change{kind, "n2", "127.0.0.1:1"}); err == nil || !strings.Contains(err.Error(), "lockstep add n1") {
			t.Fatalf("%v: %v", kind, err) // without the other member's answers nothing more is committed
		}
	}
	for _, c := range []Change{{AddVoter, "n1", "127.0.0.1:2"}, {AddNonVoter, "n2", "127.0.0.1:1"}} {
		if err := change(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
