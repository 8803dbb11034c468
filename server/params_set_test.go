package server

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// TestRefusedChangeHasNoEffect: TLS parameters take effect only after the leader has accepted the CONFIG SET. A refused CONFIG SET undoes
// no other client's change.
func TestRefusedChangeHasNoEffect(t *testing.T) {
	ts := newTestServer(t, nil)
	a, b := ts.dial(t), ts.dial(t)
	release := ts.holdAfterFirst() // the first question to the leader is about the client's rights
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

// TestSettingsDoNotQueue: a CONFIG SET that waits for another one is refused after settingWait.
func TestSettingsDoNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{srv: &Server{params: &params{setting: make(chan struct{}, 1)}, stop: make(chan struct{})}}
		s.srv.cfg.Clock = time.Now
		leave, refusal := s.beginSetting()
		if refusal != "" {
			t.Fatal(refusal)
		}
		began := time.Now()
		if _, refusal := s.beginSetting(); refusal != errSetting || time.Since(began) != settingWait {
			t.Errorf("%q after %v", refusal, time.Since(began))
		}
		time.AfterFunc(time.Second, leave)
		if _, refusal := s.beginSetting(); refusal != "" || time.Since(began) != settingWait+time.Second {
			t.Errorf("%q after %v", refusal, time.Since(began))
		}
		close(s.srv.stop)
		if _, refusal := s.beginSetting(); refusal != errSetting {
			t.Errorf("%q at the end", refusal)
		}
	})
}

// TestMergedChanges: two clients set the limits of different classes at the same time. Both changes take effect.
func TestMergedChanges(t *testing.T) {
	ts := newTestServer(t, nil)
	a, b := ts.dial(t), ts.dial(t)
	release := ts.holdAfterFirst() // the first question to the leader is about the client's rights
	a.send("CONFIG SET client-output-buffer-limit \"pubsub 1 2 3\" maxmemory 100mb\r\n")
	until(t, "the leader's turn", func() bool { return ts.fake.held.Load() == 1 })
	b.send("CONFIG SET client-output-buffer-limit \"normal 4 5 6\"\r\n")
	for range 1000 { // the second CONFIG SET has no effect yet, because it waits for the first
		runtime.Gosched()
	}
	release()
	for _, c := range []*client{a, b} {
		c.expect("+OK\r\n")
	}
	if p, n := ts.params.limitOf("pubsub").hard, ts.params.limitOf("normal").hard; p != 1 || n != 4 {
		t.Errorf("the limits are %d and %d, want 1 and 4", p, n)
	}
}

// TestShareOfMaxMemory: a maxmemory-clients in percent follows maxmemory, whoever changes maxmemory. A percentage above 0 never
// removes the limit.
func TestShareOfMaxMemory(t *testing.T) {
	ts := newTestServer(t, func(c *Config) { c.MaxMemoryClients, c.Limits.Memory = 12<<20, 0 })
	c := ts.dial(t)
	limit := func(want int64) {
		t.Helper()
		ts.followMaxMemory() // as cron does each second
		if got := ts.params.clientLimit.Load(); got != want {
			t.Errorf("the limit is %d, want %d", got, want)
		}
	}
	c.do("CONFIG SET maxmemory 1000mb maxmemory-clients 5%", "+OK\r\n")
	limit(50 << 20)
	c.do("CONFIG SET maxmemory 2000mb", "+OK\r\n")
	limit(100 << 20)
	c.do("CONFIG SET maxmemory 0", "+OK\r\n")
	limit(12 << 20)
	c.do("CONFIG SET maxmemory 10", "+OK\r\n")
	limit(1)
	c.do("CONFIG SET maxmemory-clients 7mb maxmemory 2000mb", "+OK\r\n")
	limit(7 << 20)
	c.do("CONFIG SET maxmemory-clients 0%", "+OK\r\n")
	limit(0)
	for _, bad := range []string{"+5%", "050%", "-5%", "%", "5 %"} {
		if r := c.ask("CONFIG", "SET", "maxmemory-clients", bad); !strings.Contains(r.Text, "must be a memory or percent value") {
			t.Errorf("%s: %s", bad, r.Text)
		}
	}
}

// TestNoBusyThreshold: as in Redis, a busy-reply-threshold of 0 means that no client is told BUSY.
func TestNoBusyThreshold(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	c.do("CONFIG SET busy-reply-threshold 100", "+OK\r\n")
	c.do("CONFIG SET lua-time-limit 0", "+OK\r\n")
	if got := time.Duration(ts.fake.threshold.Load()); got < 1000*time.Hour {
		t.Errorf("the threshold is %v", got)
	}
	c.do("CONFIG GET busy-reply-threshold", "*2\r\n$20\r\nbusy-reply-threshold\r\n$1\r\n0\r\n")
}

// TestLongKeepAlive: Redis accepts a tcp-keepalive that is longer than Linux allows. This server accepts it, too, and new clients
// still have a TCP keep-alive.
func TestLongKeepAlive(t *testing.T) {
	log := new(lines)
	ts := newTestServer(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	ts.dial(t).do("CONFIG SET tcp-keepalive 40000", "+OK\r\n")
	ts.dial(t).do("PING", "+PONG\r\n")
	if n := log.count("keep-alive"); n != 0 {
		t.Error("a new client has no TCP keep-alive")
	}
}

// TestLongPassword: CONFIG SET refuses a password that is too long for any client to send.
func TestLongPassword(t *testing.T) {
	ts := newTestServer(t, nil)
	c := ts.dial(t)
	if r := c.ask("CONFIG", "SET", "requirepass", strings.Repeat("p", MaxPassword+1)); !strings.Contains(r.Text, "too long") {
		t.Error(r.Text)
	}
	longest := strings.Repeat("p", MaxPassword)
	if r := c.ask("CONFIG", "SET", "requirepass", longest); r.Text != "OK" {
		t.Error(r.Text)
	}
	if r := ts.dial(t).ask("AUTH", longest); r.Text != "OK" {
		t.Error(r.Text)
	}
}

// TestTLSBetweenNodesNeedsCertificates: as in Redis, tls-cluster and tls-replication cannot be set to yes without certificates.
func TestTLSBetweenNodesNeedsCertificates(t *testing.T) {
	for _, has := range []bool{false, true} {
		log := new(lines)
		ts := newTestServer(t, func(c *Config) {
			c.Log = slog.New(slog.NewTextHandler(log, nil))
			if has {
				c.TLS, _ = testCertificates(t)
			}
		})
		c := ts.dial(t)
		for _, name := range []string{"tls-cluster", "tls-replication"} {
			want := "+OK\r\n"
			if !has {
				want = "-" + string(errParam(name, faultTLS)) + "\r\n"
			}
			c.do("CONFIG SET timeout 7 "+name+" YES", want)
			c.do("CONFIG SET "+name+" no", "+OK\r\n")
			if n := log.count("CONFIG SET " + name); n > 0 == has {
				t.Errorf("certificates: %t, %d log lines about %s", has, n, name)
			}
		}
	}
}
