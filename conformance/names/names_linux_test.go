package names

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/lockstep-io/lockstep/conformance/chaos/network"
	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const (
	domain = ".locks.test"
	pass   = "0123456789abcdef0123456789abcdef"
	hour   = "3600000"
	// found is how long a node with a new address may be out of reach of the others, and of its clients.
	found = 10 * time.Second
)

// resolver answers questions for the addresses of names. It lives on a host of its own.
type resolver struct {
	conn  net.PacketConn
	mu    sync.Mutex
	addrs map[string]netip.Addr // by name with the final dot
	asked int
}

func (r *resolver) set(name string, addr netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addrs[name+domain+"."] = addr
}

func (r *resolver) run() {
	b := make([]byte, 512)
	for {
		n, from, err := r.conn.ReadFrom(b)
		if err != nil {
			return // closed
		}
		if answer, err := r.answer(b[:n]); err == nil {
			_, _ = r.conn.WriteTo(answer, from) // who does not get it asks again
		}
	}
}

func (r *resolver) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, errors.New("no question")
	}
	q := m.Questions[0]
	r.mu.Lock()
	addr, known := r.addrs[q.Name.String()]
	r.asked++
	r.mu.Unlock()
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	} else if q.Type == dnsmessage.TypeA {
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 5}, Body: &dnsmessage.AResource{A: addr.As4()}}}
	}
	return m.Pack()
}

// place is a network with a resolver, whose nodes have names.
type place struct {
	t      *testing.T
	net    *network.Switch
	names  *resolver
	conf   string // the hosts' resolv.conf
	secret string
	dir    string
	next   byte
	nodes  map[string]*node
}

// node is a process on a host. After a move, another process on another host takes its name and its data.
type node struct {
	name string
	host *network.Host
	cmd  *exec.Cmd
	log  *bytes.Buffer
}

func (p *place) host() *network.Host {
	p.t.Helper()
	p.next++
	h, err := p.net.Add(netip.AddrFrom4([4]byte{10, 79, 0, p.next}))
	if errors.Is(err, network.ErrForbidden) {
		p.t.Skip(err)
	}
	if err == nil {
		err = h.Do(func() error { return syscall.Mount(p.conf, "/etc/resolv.conf", "", syscall.MS_BIND, "") })
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return h
}

// run starts a node with a name on a new host, whose address the resolver tells from then on.
func (p *place) run(name string) {
	p.t.Helper()
	n := &node{name: name, host: p.host(), log: new(bytes.Buffer)}
	var peers []string
	for i := 1; i <= 3; i++ {
		peers = append(peers, fmt.Sprintf("n%d=n%d%s:7379", i, i, domain))
	}
	n.cmd = exec.Command(nodes.Binary(p.t), "serve", "--id", name, "--data", filepath.Join(p.dir, name), "--peers", strings.Join(peers, ","), "--peer-secret-file", p.secret,
		"--listen", "0.0.0.0:6379", "--advertise", name+domain+":6379", "--peer-listen", "0.0.0.0:7379", "--peer-advertise", name+domain+":7379", "--http-listen", "", "--requirepass", pass)
	n.cmd.Env, n.cmd.Stderr = environ.Environ(), n.log
	if err := n.host.Do(n.cmd.Start); err != nil {
		p.t.Fatal(err)
	}
	p.names.set(name, n.host.Addr)
	p.nodes[name] = n
}

// end ends a node, and takes its host away.
func (p *place) end(name string, how os.Signal) {
	p.t.Helper()
	n := p.nodes[name]
	if err := n.cmd.Process.Signal(how); err != nil {
		p.t.Fatal(err)
	}
	_ = n.cmd.Wait() // it was told to end
	delete(p.nodes, name)
	if err := p.net.Remove(n.host.Addr); err != nil {
		p.t.Error(err)
	}
}

// do sends a command to a node, which a client finds by its name.
func (p *place) do(through, to string, command ...string) (any, error) {
	p.names.mu.Lock()
	addr := p.names.addrs[to+domain+"."]
	p.names.mu.Unlock()
	conn, err := p.nodes[through].host.Dial(netip.AddrPortFrom(addr, 6379).String(), time.Second)
	if err != nil {
		return nil, err
	}
	c := respclient.NewConn(conn)
	defer c.Close()
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.Do("AUTH", pass); err != nil {
		return nil, err
	}
	return c.Do(command...)
}

// awaits repeats a command until it has a reply without an error, and returns how long that took.
func (p *place) awaits(to string, want any, command ...string) time.Duration {
	p.t.Helper()
	began := time.Now()
	for {
		reply, err := p.do(to, to, command...)
		if err == nil && (want == nil || reply == want) {
			return time.Since(began)
		}
		if time.Since(began) > 60*time.Second {
			p.t.Fatalf("%s: %q: %v, %v", to, command, reply, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// up reports whether a node sees all three members.
func (p *place) up(at string) bool {
	reply, err := p.do(at, at, "LOCKSTEP", "MEMBERS")
	return err == nil && strings.Count(fmt.Sprint(reply), " up 1") == 3
}

// TestAddressesChange: three nodes know each other by name. One after the other comes back at another IP address with its data, as a pod of a
// StatefulSet does; twice all of them, once after a clean end and once after a kill. The others find it within 10 s, and no lock is lost.
func TestAddressesChange(t *testing.T) {
	if testing.Short() {
		t.Skip("nodes are started anew")
	}
	dir := t.TempDir()
	p := &place{t: t, net: network.NewSwitch(1), names: &resolver{addrs: map[string]netip.Addr{}}, conf: filepath.Join(dir, "resolv.conf"), secret: filepath.Join(dir, "secret"),
		dir: dir, nodes: map[string]*node{}}
	t.Cleanup(func() {
		for name, n := range p.nodes {
			if t.Failed() {
				t.Logf("%s at %s says:\n%s", name, n.host.Addr, n.log)
			}
			_ = n.cmd.Process.Kill()
			_ = n.cmd.Wait()
		}
		if err := p.net.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(os.WriteFile(p.conf, []byte("nameserver 10.79.0.1\noptions timeout:1 attempts:2\n"), 0o644), os.WriteFile(p.secret, []byte(pass+"\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := p.host().Do(func() (err error) {
		p.names.conn, err = net.ListenPacket("udp4", "10.79.0.1:53")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.names.conn.Close() })
	go p.names.run()

	list := []string{"n1", "n2", "n3"}
	for _, name := range list {
		p.run(name)
	}
	const held = 50
	for i := range held {
		p.awaits(list[i%3], "OK", "SET", fmt.Sprint("lock-", i), "owner", "NX", "PX", hour)
	}
	for _, how := range []os.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, name := range list {
			p.end(name, how)
			p.run(name)
			moved := time.Now()
			serves := p.awaits(name, nil, "GET", "lock-0")
			for _, other := range list {
				for !p.up(other) {
					if time.Since(moved) > 60*time.Second {
						t.Fatalf("%s does not see all members", other)
					}
					time.Sleep(20 * time.Millisecond)
				}
			}
			seen := time.Since(moved)
			t.Logf("%s, ended by %v, is at %s: it serves after %v, and all see it after %v", name, how, p.nodes[name].host.Addr, serves.Round(time.Millisecond), seen.Round(time.Millisecond))
			if serves > found || seen > found {
				t.Errorf("%s was not found for %v, want %v at most", name, max(serves, seen), found)
			}
			for i := range held {
				key := fmt.Sprint("lock-", i)
				if reply, err := p.do(name, name, "SET", key, "other", "NX", "PX", hour, "GET"); err != nil || reply != "owner" {
					t.Fatalf("%s at %s: %v, %v", key, name, reply, err)
				}
			}
		}
	}
	p.names.mu.Lock()
	defer p.names.mu.Unlock()
	if p.names.asked < 20 {
		t.Errorf("the resolver was asked only %d times", p.names.asked)
	}
}
