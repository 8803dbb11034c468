package lock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockstep-io/lockstep/server/respclient"
)

// fakeServers are servers by address. A server is a function that returns the reply to a command; "" ends the connection.
type fakeServers struct {
	mu   sync.Mutex
	of   map[string]func(command []string) string
	seen []string // the commands so far, each with its address
}

func (f *fakeServers) dial(addr string, within time.Duration) (*respclient.Conn, error) {
	serve := f.of[addr]
	if serve == nil {
		return nil, fmt.Errorf("%s is down", addr)
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		for in := bufio.NewReader(far); ; {
			command, err := readCommand(in)
			if err != nil {
				return
			}
			f.mu.Lock()
			f.seen = append(f.seen, addr+" "+strings.Join(command, " "))
			f.mu.Unlock()
			reply := serve(command)
			if reply == "" {
				return
			}
			if _, err := io.WriteString(far, reply+"\r\n"); err != nil {
				return
			}
		}
	}()
	return respclient.NewConn(near), nil
}

func readCommand(in *bufio.Reader) (command []string, err error) {
	number := func() (n int) {
		line, fault := in.ReadString('\n')
		if err = errors.Join(err, fault); err == nil {
			n, err = strconv.Atoi(strings.TrimSpace(line)[1:])
		}
		return n
	}
	for range number() {
		word := make([]byte, number()+len("\r\n"))
		if _, fault := io.ReadFull(in, word); fault != nil {
			return nil, fault
		}
		command = append(command, strings.TrimSpace(string(word)))
	}
	return command, err
}

// sent returns the commands with a name that the servers have seen, as fields.
func (f *fakeServers) sent(name string) (commands [][]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.seen {
		if words := strings.Fields(c); words[1] == name {
			commands = append(commands, words)
		}
	}
	return commands
}

// bubble runs a test with fake servers and a lock of 30 s.
func bubble(t *testing.T, of map[string]func([]string) string, addrs []string, test func(*fakeServers, *remote, *fakeClock)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fakeServers{of: of}
		clock := newFakeClock()
		r := &remote{servers: servers{dial: f.dial, addrs: addrs}, clock: clock, name: "job", ttl: 30 * time.Second, timeout: 9 * time.Second}
		test(f, r, clock)
		r.close()
		time.Sleep(48 * time.Hour) // servers that sleep end, too
	})
}

const granted = "*3\r\n:7\r\n:30000\r\n:1"

// TestLeaseCountsFromTheRequest: the time that the reply takes belongs to the lease.
func TestLeaseCountsFromTheRequest(t *testing.T) {
	slow := func([]string) string { time.Sleep(2 * time.Second); return granted }
	bubble(t, map[string]func([]string) string{"a": slow}, []string{"a"}, func(f *fakeServers, r *remote, clock *fakeClock) {
		begun := clock.Now()
		g, err := r.acquire(context.Background(), 0)
		if err != nil || g.token != "7" || g.lease.from != begun || g.owner != r.owner {
			t.Errorf("%v, %v", g, err)
		}
		if len(f.sent("LOCK.RENEW")) != 0 {
			t.Error("it was renewed")
		}
	})
}

// TestGrantAfterAWait: nobody knows how old a grant is for which the lock was waited for. So it is renewed first, and if it is over by
// then, the lock is asked for again.
func TestGrantAfterAWait(t *testing.T) {
	for _, slept := range []time.Duration{0, time.Hour} {
		var clock *fakeClock
		renewals := []string{":0", ":1"}
		node := func(command []string) string {
			switch command[0] {
			case "LOCK.ACQUIRE":
				time.Sleep(time.Minute)
				clock.forward(slept) // this process was stopped just now
				return granted
			case "LOCK.RENEW":
				reply := renewals[0]
				renewals = renewals[1:]
				return reply
			}
			return ":1"
		}
		bubble(t, map[string]func([]string) string{"a": node}, []string{"a"}, func(f *fakeServers, r *remote, c *fakeClock) {
			clock = c
			begun := c.Now()
			g, err := r.acquire(context.Background(), -1)
			if err != nil || g.lease.from < begun+2*time.Minute {
				t.Errorf("%v, %v, begun at %v", g, err, begun)
			}
			asked, renewed := f.sent("LOCK.ACQUIRE"), f.sent("LOCK.RENEW")
			if len(asked) != 2 || len(renewed) != 2 || asked[0][3] != renewed[0][3] || asked[0][3] == asked[1][3] {
				t.Errorf("%q, %q", asked, renewed)
			}
		})
	}
}

// TestUnknownOutcome: the connection breaks after the command was sent, or the outcome is not known otherwise. The lock is released in case
// it was taken, and asked for in the name of another owner.
func TestUnknownOutcome(t *testing.T) {
	for _, reply := range []string{"", "-INDETERMINATE The outcome is not known"} {
		first := func(command []string) string {
			if command[0] == "LOCK.ACQUIRE" {
				return reply
			}
			return "$-1"
		}
		second := func(command []string) string {
			if command[0] == "LOCK.ACQUIRE" {
				return granted
			}
			return ":0"
		}
		of := map[string]func([]string) string{"a": first, "b": second}
		bubble(t, of, []string{"a", "b"}, func(f *fakeServers, r *remote, _ *fakeClock) {
			g, err := r.acquire(context.Background(), 0)
			asked, released := f.sent("LOCK.ACQUIRE"), f.sent("LOCK.RELEASE")
			if err != nil || len(asked) != 2 || len(released) != 1 || released[0][3] != asked[0][3] || asked[1][3] != g.owner || asked[0][3] == g.owner {
				t.Errorf("%q: %v, %v: %q", reply, g, err, f.seen)
			}
		})
	}
}

// TestFrozenNode: a node keeps the connection of a client that waits, but answers nothing more. The client goes on at the next node.
func TestFrozenNode(t *testing.T) {
	frozen := func([]string) string { time.Sleep(24 * time.Hour); return "" }
	cut := func(command []string) string {
		if command[0] == "LOCK.ACQUIRE" {
			time.Sleep(24 * time.Hour)
		}
		return "-CLUSTERDOWN there is no leader"
	}
	free := func([]string) string { return granted }
	for _, first := range []func([]string) string{frozen, cut} {
		of := map[string]func([]string) string{"a": first, "b": free}
		bubble(t, of, []string{"a", "b"}, func(f *fakeServers, r *remote, clock *fakeClock) {
			begun := clock.Now()
			if g, err := r.acquire(context.Background(), time.Hour); err != nil || clock.Now()-begun > time.Minute {
				t.Errorf("%v, %v after %v: %q", g, err, clock.Now()-begun, f.seen)
			}
		})
	}
	bubble(t, map[string]func([]string) string{"a": frozen}, []string{"a"}, func(f *fakeServers, r *remote, clock *fakeClock) {
		begun := clock.Now()
		if _, err := r.acquire(context.Background(), time.Hour); !errors.Is(err, errNoneAnswer) || clock.Now()-begun > time.Minute {
			t.Errorf("%v after %v: %q", err, clock.Now()-begun, f.seen)
		}
	})
}

// TestWaitingWhereTheNodeServes: a client waits for hours at a node that answers, and does not count it as gone.
func TestWaitingWhereTheNodeServes(t *testing.T) {
	node := func(command []string) string {
		if command[0] == "LOCK.ACQUIRE" {
			time.Sleep(5 * time.Hour)
			return granted
		}
		return ":1"
	}
	bubble(t, map[string]func([]string) string{"a": node, "b": node}, []string{"a", "b"}, func(f *fakeServers, r *remote, _ *fakeClock) {
		if _, err := r.acquire(context.Background(), -1); err != nil || len(f.sent("LOCK.ACQUIRE")) != 1 {
			t.Errorf("%v: %q", err, f.sent("LOCK.ACQUIRE"))
		}
	})
}

// TestWhoIsAsked: servers that are down or cannot serve are passed over until --timeout is over; a refusal ends the search; redirections
// are followed.
func TestWhoIsAsked(t *testing.T) {
	reply := func(text string) func([]string) string { return func([]string) string { return text } }
	for _, c := range []struct {
		name string
		a, b func([]string) string
		want error
		says string
	}{
		{"the first is down", nil, reply(granted), nil, ""},
		{"no leader", reply("-CLUSTERDOWN no leader"), reply(granted), nil, ""},
		{"a replica", reply("-READONLY You can't write against a read only replica."), reply(granted), nil, ""},
		{"redirected", reply("-MOVED 12 b:1"), reply(granted), nil, ""},
		{"redirected to a file", reply("-MOVED 12 /run/x:1"), nil, errors.New(""), "MOVED"},
		{"redirected within the host", reply("-MOVED 12 :1"), reply(granted), againError{}, "circle"},
		{"in a circle", reply("-MOVED 12 b:1"), reply("-MOVED 12 a:1"), againError{}, "circle"},
		{"all are down", nil, nil, errNoneAnswer, "is down"},
		{"refused", reply("-NOPERM no"), reply(granted), respclient.ServerError("NOPERM no"), ""},
		{"taken", reply("*-1"), reply(granted), errTaken, ""},
		{"nonsense", reply("+hello"), reply(granted), nil, "hello"},
	} {
		of := map[string]func([]string) string{"a:1": c.a, "b:1": c.b}
		bubble(t, of, []string{"a:1", "b:1"}, func(f *fakeServers, r *remote, clock *fakeClock) {
			begun := clock.Now()
			var err error
			if _, again := c.want.(againError); again {
				_, err = r.ask(context.Background(), 0)
				if refused(err) {
					err = fmt.Errorf("final: %w", err)
				}
			} else if _, err = r.acquire(context.Background(), 0); c.says == "" && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", c.name, err, c.want)
			}
			if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%s: %v does not say %q", c.name, err, c.says)
			}
			if took := clock.Now() - begun; took > 10*time.Second {
				t.Errorf("%s: it took %v", c.name, took)
			}
		})
	}
}

// TestLimitOnRedis: a server without LOCK.ACQUIRE gets SET NX, but not for several owners.
func TestLimitOnRedis(t *testing.T) {
	redis := func(command []string) string {
		if command[0] == "SET" {
			return "+OK"
		}
		return "-ERR unknown command 'LOCK.ACQUIRE', with args beginning with: 'job'"
	}
	bubble(t, map[string]func([]string) string{"a": redis}, []string{"a"}, func(f *fakeServers, r *remote, _ *fakeClock) {
		if g, err := r.acquire(context.Background(), -1); err != nil || g.token != "" || !r.plain {
			t.Error(g, err)
		}
		r.plain, r.permits = false, 2
		if _, err := r.acquire(context.Background(), -1); !errors.Is(err, errNoPermits) || !refused(err) {
			t.Error(err)
		}
	})
}
