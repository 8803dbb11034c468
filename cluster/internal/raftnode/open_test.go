package raftnode

import (
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/cluster/internal/clustertest"
	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
	"github.com/lockstep-io/lockstep/raftfsm"
)

// memberConfig is the configuration of a member with its data in a directory. It snapshots only when asked.
func memberConfig(t testing.TB, dir string) *Config {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	dialer, err := peerport.NewDialer(peerport.TLS{}, time.Now, log)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &Config{
		ID: "n1", Data: dir, Disk: datadir.SystemDisk(), Dialer: dialer, Older: func(string) bool { return false },
		HeartbeatTimeout: 200 * time.Millisecond, ElectionTimeout: 200 * time.Millisecond, LeaderLease: 150 * time.Millisecond,
		SnapshotThreshold: 1 << 40, SnapshotInterval: time.Hour, TrailingLogs: 10_000, SnapshotBytes: 64 << 20,
		Time: clustertest.NewClock(), Logger: log, Fatal: func(err error) { t.Error(err) },
	}
	cfg.Listen = func() (net.Listener, error) {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil && cfg.Addr == "" {
			cfg.Addr = ln.Addr().String()
		}
		return ln, err
	}
	return cfg
}

// openMember opens a member. It is closed at the end of the test, unless the test closes it before.
func openMember(t testing.TB, cfg *Config) (r *Node, fsm *raftfsm.FSM, closeEarly func()) {
	t.Helper()
	fsm = raftfsm.New(nil)
	leads := make(chan Leadership)
	r, err := Open(cfg, fsm, Hooks{
		Applied: func(raftfsm.Outcome) {}, Restored: func(uint64, int64) {}, Members: func() {},
		Vouched: func(string) bool { return false }, Leads: leads, Crowded: func() {},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-leads:
			case <-done:
				return
			}
		}
	}()
	closeEarly = sync.OnceFunc(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		close(done)
	})
	t.Cleanup(closeEarly)
	return r, fsm, closeEarly
}
