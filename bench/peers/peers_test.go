package peers

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// site returns a place for servers, with ports that no other test process uses.
func site(t *testing.T) *Site {
	return &Site{Dir: t.TempDir(), Lockstep: nodes.Binary(t), Port: 20000 + os.Getpid()%90*100}
}

func TestFind(t *testing.T) {
	if _, err := Find("redis-without-io_uring"); err == nil {
		t.Error("Redis has none of lockstep's fast paths")
	}
	k, err := Find("lockstep-1-without-event-loops")
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.Start(site(t))
	if err != nil {
		t.Fatal(err)
	}
	twoClients(t, s)
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	if k, err = Find("lockstep-1-without-luck"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Start(site(t)); err == nil || !strings.Contains(err.Error(), "want some of event-loops") {
		t.Errorf("a node goes without luck: %v", err)
	}
}

// TestPeers starts each peer that is installed, and does with its locks everything that a load does.
func TestPeers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	spoken := map[string]string{}
	for _, kind := range Kinds {
		t.Run(kind.Name, func(t *testing.T) {
			s, err := kind.Start(site(t))
			if errors.Is(err, ErrNotInstalled) {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := s.Stop(); err != nil {
					t.Error(err)
				}
			}()
			t.Logf("%s %s", s.Name, s.Version)
			twoClients(t, s)
			secrecy(t, s, spoken)
		})
	}
	if len(spoken) > 1 {
		t.Errorf("not all speak the same: %v", spoken)
	}
}

// secrecy checks that exactly the peers whose names end in -tls speak TLS. It notes the version and cipher suite, for a
// comparison.
func secrecy(t *testing.T, s *System, spoken map[string]string) {
	if secret := strings.HasSuffix(s.Name, "-tls"); secret != (s.secret != nil) {
		t.Fatalf("clients speak TLS: %v, the name says: %v", !secret, secret)
	}
	for _, addr := range s.resp {
		plain, err := respclient.Dial(addr, adminTimeout)
		if err != nil {
			t.Fatal(err)
		}
		defer plain.Close()
		if pong, err := plain.Do("PING"); (pong == "PONG") != (s.secret == nil) {
			t.Errorf("PING without TLS: %v, %v", pong, err)
		}
		if s.secret == nil {
			continue
		}
		conn, err := tls.Dial("tcp", addr, s.secret)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got := conn.ConnectionState()
		spoken[tls.VersionName(got.Version)+" with "+tls.CipherSuiteName(got.CipherSuite)] = s.Name
	}
}

// peer has the two sessions of a test.
type peer struct {
	*testing.T
	system *System
	a, b   load.Session // sessions of the same owner
}

func twoClients(t *testing.T, s *System) {
	p := &peer{T: t, system: s}
	p.a, p.b = p.open("me"), p.open("me")
	p.locks()
	p.leases()
	p.expiry()
	p.reentrant()
	p.native()
	p.queue()
	for _, session := range []load.Session{p.a, p.b} {
		if err := session.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.Traffic.Sent() == 0 || s.Traffic.Received() == 0 {
		t.Error("no traffic was counted")
	}
	if err := s.Reset(); err != nil {
		t.Fatal(err)
	}
	p.afterwards()
}

// want calls the function do with some keys, and checks the number that this function returns.
func (p *peer) want(what string, want int, do func([]string) (int, error), keys ...string) {
	p.Helper()
	if got, err := do(keys); err != nil || got != want {
		p.Errorf("%s %v: %d, %v, want %d", what, keys, got, err, want)
	}
}

func (p *peer) lacks(workload string) string {
	return p.system.Lacks(load.Case{Workload: workload, Clients: 1, Pipeline: 1})
}

// anywhere returns the place load.All if clients may use any server of the peer, and load.Leader otherwise.
func (p *peer) anywhere() load.Place {
	if p.system.Lacks(load.Case{At: load.All}) != "" {
		return load.Leader
	}
	return load.All
}

func (p *peer) locks() {
	p.want("lock", 1, p.a.Lock, "k1")
	p.want("try-lock", 0, p.b.Lock, "k1")
	p.want("try-lock", 1, p.b.Lock, "k1", "k2")
	p.want("read", 2, p.a.Held, "k1", "k2", "k3")
	p.want("unlock", 2, p.b.Unlock, "k1", "k2", "k3")
	p.want("read", 0, p.a.Held, "k1", "k2", "k3")
	p.want("lock", 1, p.a.Lock, "left")
}

func (p *peer) leases() {
	if p.lacks("renew") != "" {
		return
	}
	p.want("hold", 2, p.a.Hold, "h1", "h2")
	p.want("renew", 2, p.b.Renew, "h1", "h2")
	p.want("drop", 2, p.a.Drop, "h1", "h2")
	p.want("read", 0, p.b.Held, "h1", "h2")
	p.want("hold", 1, p.a.Hold, "h1")
}

// expiry checks that leases end when they should, and that the peer counts them.
func (p *peer) expiry() {
	if p.lacks("expire") != "" {
		return
	}
	s := p.a.(load.Expiring)
	before, err := s.Expired()
	if err != nil {
		p.Fatal(err)
	}
	p.want("hold", 2, func(keys []string) (int, error) { return s.HoldFor(keys, 100*time.Millisecond) }, "e1", "e2")
	p.want("read", 2, p.b.Held, "e1", "e2")
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		n, err := s.Expired()
		if err != nil || time.Now().After(end) {
			p.Fatalf("%d leases have ended, %v", n-before, err)
		}
		if n == before+2 {
			break
		}
	}
	p.want("read", 0, p.b.Held, "e1", "e2")
}

func (p *peer) reentrant() {
	if p.lacks("rlock") != "" {
		return
	}
	r, other := p.a.(load.Reentrant), p.b.(load.Reentrant)
	for range 2 {
		p.want("RLock", 2, r.LockReentrant, "r1", "r2")
		p.want("unlock of RLock", 2, other.UnlockReentrant, "r1", "r2") // both sessions have the same owner
	}
	p.want("read", 0, p.a.Held, "r1", "r2")
}

// native checks that the commands for locks exclude those who take locks in other ways.
func (p *peer) native() {
	n, ok := p.a.(load.Native)
	if ours := strings.HasPrefix(p.system.Name, "lockstep-"); ok != ours || ok != (p.lacks("native-cycle") == "") {
		p.Fatalf("it has commands for locks: %v, and lacks native-cycle: %q", ok, p.lacks("native-cycle"))
	}
	if !ok {
		return
	}
	p.want("lock", 2, n.LockNative, "n1", "n2")
	p.want("try-lock", 0, p.b.Lock, "n1", "n2")
	p.want("read", 2, p.b.Held, "n1", "n2")
	p.want("unlock", 2, n.UnlockNative, "n1", "n2", "n3")
	p.want("unlock", 0, n.UnlockNative, "n1", "n2")
	p.want("lock", 1, p.b.Lock, "n1")
	other := p.open("somebody else")
	p.want("try-lock", 1, other.(load.Native).LockNative, "n1", "n2")
	p.want("unlock", 1, p.b.Unlock, "n1", "n2")
	if err := other.Close(); err != nil {
		p.Error(err)
	}
}

func (p *peer) open(owner string) load.Session {
	s, err := p.system.At(load.Leader).Open(owner)
	if err != nil {
		p.Fatal(err)
	}
	return s
}

// queue checks that only one session at a time is inside, and that every session gets in.
func (p *peer) queue() {
	for _, key := range []string{"queue", "another queue"} {
		if p.lacks("contended") == "" {
			p.takeTurns(key, func(s load.Session) (enter, leave func(string) error) {
				q := s.(load.Queued)
				return q.Enter, q.Leave
			})
		}
		if p.lacks("herd") == "" {
			p.takeTurns(key, func(s load.Session) (enter, leave func(string) error) {
				h := s.(load.Herded)
				return h.EnterAlone, h.Leave
			})
		}
		if _, ok := p.a.(load.Native); ok {
			p.takeTurns(key, func(s load.Session) (enter, leave func(string) error) {
				n := s.(load.Native)
				return n.EnterNative, n.LeaveNative
			})
		}
	}
	if (p.lacks("native") == "") != (p.lacks("contended") == "") {
		p.Error("native is contended on all other peers")
	}
	if p.system.hub != nil {
		p.Error("the common connection is left")
	}
}

// With many sessions, etcd's clients do not wait in its lock service.
func TestEtcdByRecipe(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	defer func(most int64) { serviceMost = most }(serviceMost)
	serviceMost = 0
	kind, err := Find("etcd")
	if err != nil {
		t.Fatal(err)
	}
	s, err := kind.Start(site(t))
	if errors.Is(err, ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{T: t, system: s}
	p.takeTurns("queue", func(s load.Session) (enter, leave func(string) error) {
		e := s.(*etcdSession)
		return e.Enter, func(key string) error {
			if e.mutex == nil || e.inside != nil {
				t.Error("the session waited in the lock service")
			}
			return e.Leave(key)
		}
	})
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
}

func (p *peer) takeTurns(key string, turn func(load.Session) (enter, leave func(string) error)) {
	var inside atomic.Int32
	var work sync.WaitGroup
	waiters := p.system.At(p.anywhere())
	for id := range 4 {
		s, err := waiters.Open(fmt.Sprint("waiter:", id))
		if err != nil {
			p.Fatal(err)
		}
		enter, leave := turn(s)
		work.Go(func() {
			for range 5 {
				if err := enter(key); err != nil {
					p.Error(err)
				}
				if n := inside.Add(1); n != 1 {
					p.Errorf("%d are inside", n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := leave(key); err != nil {
					p.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				p.Error(err)
			}
		})
	}
	work.Wait()
}

// afterwards checks that no lock is left.
func (p *peer) afterwards() {
	s := p.open("you")
	p.want("read", 0, s.Held, "left", "h1")
	if err := s.Close(); err != nil {
		p.Error(err)
	}
	memory, err := p.system.Memory()
	if usage := p.system.Usage(); err != nil || runtime.GOOS == "linux" && (usage.CPU < 0 || memory <= 0) {
		p.Errorf("the servers have used %+v, and have %d bytes, %v", usage, memory, err)
	}
}

func TestNotInstalled(t *testing.T) {
	k := Kind{Name: "x", programs: []string{"no-such-program-of-lockstep"}, what: "x-server"}
	if _, err := k.Start(&Site{Dir: t.TempDir()}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v", err)
	}
}

// If a server ends as soon as it is started, the error has the server's own output, and nothing is left behind.
func TestServerThatEnds(t *testing.T) {
	k := Kind{Name: "x", start: func(s *System) error {
		s.reset = func() ([]string, error) { return nil, errors.New("nobody there") }
		return s.launch("1", nil, "sh", "-c", "echo out of luck; exit 1")
	}}
	_, err := k.Start(&Site{Dir: t.TempDir()})
	if err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("got %v", err)
	}
}
