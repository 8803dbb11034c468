package bridge

import (
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/ports"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// A front is an address that leads to another one, which may change: the address of a service, or of a primary as a replica sees it.
type front struct {
	addr  string
	mu    sync.Mutex
	to    string // "" while nothing is there
	conns map[net.Conn]bool
}

func newFront(t *testing.T, to string) *front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{addr: l.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		l.Close()
		f.lead("")
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
	return f
}

func (f *front) serve(c net.Conn) {
	f.mu.Lock()
	to := f.to
	var far net.Conn
	var err error
	if to != "" {
		far, err = net.Dial("tcp", to)
	}
	if to == "" || err != nil {
		f.mu.Unlock()
		c.Close()
		return
	}
	f.conns[c], f.conns[far] = true, true
	f.mu.Unlock()
	go func() {
		_, _ = io.Copy(far, c)
		far.Close()
		c.Close()
	}()
	_, _ = io.Copy(c, far)
	far.Close()
	c.Close()
}

// lead makes the front lead to another address, "" to nothing. It cuts the present connections.
func (f *front) lead(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
	for c := range f.conns {
		c.Close()
		delete(f.conns, c)
	}
}

// A redisServer is a running redis-server or redis-sentinel.
type redisServer struct {
	addr string
	cmd  *exec.Cmd
	done chan struct{}
}

func startRedis(t *testing.T, program string, args ...string) *redisServer {
	t.Helper()
	s := &redisServer{addr: ports.Addrs(t, 1)[0], done: make(chan struct{})}
	_, port, _ := net.SplitHostPort(s.addr)
	s.cmd = exec.Command(program, append(args, "--port", port, "--bind", "127.0.0.1")...)
	s.cmd.Dir = t.TempDir()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(s.kill)
	until(t, program+" answers", func() bool {
		_, err := ask(s.addr, "PING")
		return err == nil
	})
	return s
}

func (s *redisServer) kill() {
	_ = s.cmd.Process.Kill()
	<-s.done
}

func (s *redisServer) ask(t *testing.T, args ...string) any {
	t.Helper()
	reply, err := ask(s.addr, args...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return reply
}

func ask(addr string, args ...string) (any, error) {
	c, err := respclient.Dial(addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Do(args...)
}

// until waits until something is so, at most 20 s.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for range 1000 {
		if is() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("it does not come that %s", what)
}

func pauseProcess(t *testing.T, s *redisServer) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
}

func resumeProcess(t *testing.T, s *redisServer) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}
