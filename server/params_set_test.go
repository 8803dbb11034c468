package server

import (
	"runtime"
	"testing"

	"lockstep/cluster"
	"lockstep/store"
)

// TestRefusedChangeHasNoEffect: while the leader has not accepted a CONFIG SET, its TLS parameters have no effect, and if the leader
// refuses it, what another client has set meanwhile stays.
func TestRefusedChangeHasNoEffect(t *testing.T) {
	ts := newTestServer(t, nil)
	a, b := ts.dial(t), ts.dial(t)
	release := ts.holdAfterFirst() // the leader is asked about the client's rights first
	a.send("CONFIG SET tls-auth-clients no maxmemory 100mb\r\n")
	until(t, "the leader's turn", func() bool { return ts.fake.held.Load() == 1 })
	if got := ts.cfg.TLS.Files().AuthClients; got == "no" {
		t.Error("a change that the leader may refuse has an effect")
	}
	b.send("CONFIG SET tls-protocols TLSv1.2\r\n")
	ts.fake.refusal.Store(cluster.ErrClusterDown)
	release()
	a.expect("-" + string(cluster.ErrClusterDown) + "\r\n")
	b.expect("+OK\r\n")
	ts.fake.refusal.Store(store.Error(""))
	if got := ts.cfg.TLS.Files(); got.AuthClients == "no" || got.Protocols != "TLSv1.2" {
		t.Errorf("got %+v", got)
	}
	a.do("CONFIG SET tls-auth-clients optional maxmemory 100mb", "+OK\r\n")
	if got := ts.cfg.TLS.Files(); got.AuthClients != "optional" || got.Protocols != "TLSv1.2" {
		t.Errorf("got %+v", got)
	}
}

// TestMergedChanges: two clients that set the limits of different classes at a time set both.
func TestMergedChanges(t *testing.T) {
	ts := newTestServer(t, nil)
	set := func(s *session, words ...string) chan store.Reply {
		args := [][]byte{[]byte("config"), []byte("set")}
		for _, w := range words {
			args = append(args, []byte(w))
		}
		done := make(chan store.Reply, 1)
		go func() { done <- doConfigSet(s, args) }()
		return done
	}
	ts.dial(t).do("PING", "+PONG\r\n")
	ts.dial(t).do("PING", "+PONG\r\n")
	sessions := ts.each()
	release := ts.fake.holdBack()
	a := set(sessions[0], "client-output-buffer-limit", "pubsub 1 2 3", "maxmemory", "100mb")
	until(t, "the leader's turn", func() bool { return ts.fake.held.Load() == 1 })
	b := set(sessions[1], "client-output-buffer-limit", "normal 4 5 6")
	for n := 0; n < 1000 && len(b) == 0; n++ { // it has no effect yet, because it waits for the first
		runtime.Gosched()
	}
	release()
	for _, done := range []chan store.Reply{a, b} {
		if r := <-done; r.IsError() {
			t.Error(r)
		}
	}
	if p, n := ts.params.limitOf("pubsub").hard, ts.params.limitOf("normal").hard; p != 1 || n != 4 {
		t.Errorf("the limits are %d and %d, want 1 and 4", p, n)
	}
}
