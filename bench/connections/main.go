// Connections shows whether a node can serve many connections for a while: idle subscribers, and clients that contend for locks.
//
//	go build -o lockstep ./cmd/lockstep
//	go -C bench run ./connections -server ../lockstep [-idle 9000] [-busy 1000] [-locks 100] [-for 1m]
//
// It starts a node of its own on loopback. Before that, it raises its limit of open files, which the node inherits. It prints what
// went wrong, and how much memory an idle connection takes: the growth of the node's resident memory, divided by the number of
// connections. It fails if anything went wrong.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/server/respclient"
)

// plan says what a run does.
type plan struct {
	server string
	listen string
	idle   int
	busy   int
	locks  int
	last   time.Duration

	subscribers []*respclient.Conn // kept here, or the garbage collector would close them
}

func main() {
	var p plan
	flag.StringVar(&p.server, "server", "", "the lockstep program")
	flag.StringVar(&p.listen, "listen", "127.0.0.1:26379", "address for the node")
	flag.IntVar(&p.idle, "idle", 9000, "idle subscribers")
	flag.IntVar(&p.busy, "busy", 1000, "clients that contend for locks")
	flag.IntVar(&p.locks, "locks", 100, "locks")
	flag.DurationVar(&p.last, "for", time.Minute, "how long they contend")
	flag.Parse()
	r, err := p.run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "connections:", err)
		os.Exit(1)
	}
	fmt.Println(r)
}

// result is what a run has shown.
type result struct {
	plan          *plan
	before, after int64   // KiB of resident memory
	perIdle       float64 // KiB
	taken         int64   // locks
}

func (r *result) String() string {
	return fmt.Sprintf("idle connections: %d, resident memory %d KiB before and %d KiB with them: %.1f KiB each\n"+
		"locks taken: %d in %v by %d clients over %d locks, without an error",
		r.plan.idle, r.before, r.after, r.perIdle, r.taken, r.plan.last, r.plan.busy, r.plan.locks)
}

const (
	dialTimeout = 10 * time.Second
	leaseMillis = "10000"
)

func (p *plan) run() (*result, error) {
	if p.server == "" {
		return nil, errors.New("-server is missing: build cmd/lockstep first")
	}
	if err := environ.RaiseFiles(uint64(p.idle + p.busy + 100)); err != nil {
		return nil, err
	}
	data, err := os.MkdirTemp("", "connections")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(data)
	node := exec.Command(p.server, "serve", "--data", filepath.Join(data, "n1"), "--listen", p.listen,
		"--peer-listen", "127.0.0.1:0", "--http-listen", "", "--log-level", "error")
	node.Stderr = os.Stderr
	if err := node.Start(); err != nil {
		return nil, err
	}
	defer func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		_ = node.Wait()
	}()
	return p.measure(node.Process.Pid)
}

// measure carries out the plan on a node that runs already.
func (p *plan) measure(pid int) (*result, error) {
	first, err := p.dialFirst()
	if err != nil {
		return nil, err
	}
	if _, err := first.Do("CONFIG", "SET", "maxclients", strconv.Itoa(p.idle+p.busy+10)); err != nil {
		return nil, err
	}
	r := &result{plan: p}
	if r.before, err = settledMemory(first, pid); err != nil {
		return nil, err
	}
	if err := p.subscribe(); err != nil {
		return nil, err
	}
	if r.after, err = settledMemory(first, pid); err != nil {
		return nil, err
	}
	r.perIdle = float64(r.after-r.before) / float64(max(p.idle, 1))
	r.taken, err = p.contend(first)
	return r, err
}

// dialFirst opens a connection as soon as the node serves.
func (p *plan) dialFirst() (*respclient.Conn, error) {
	var last error
	for range 200 {
		c, err := respclient.Dial(p.listen, dialTimeout)
		if err == nil {
			if _, err = c.Do("SET", "warm", "up"); err == nil {
				return c, nil
			}
			_ = c.Close()
		}
		last = err
		time.Sleep(50 * time.Millisecond)
	}
	return nil, fmt.Errorf("the node does not serve: %w", last)
}

// settledMemory returns a process's resident memory in KiB. It first has the process give back the memory that it does not use.
func settledMemory(c *respclient.Conn, pid int) (int64, error) {
	if _, err := c.Do("MEMORY", "PURGE"); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			return strconv.ParseInt(fields[1], 10, 64)
		}
	}
	return 0, errors.New("no VmRSS in /proc")
}

// subscribe opens the idle connections, and subscribes each of them to a channel. They stay open to the end.
func (p *plan) subscribe() error {
	for i := range p.idle {
		c, err := respclient.Dial(p.listen, dialTimeout)
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
		if _, err := c.Do("SUBSCRIBE", fmt.Sprintf("channel:%d", i%p.locks)); err != nil {
			return fmt.Errorf("subscriber %d: %w", i, err)
		}
		p.subscribers = append(p.subscribers, c)
	}
	return nil
}

// field returns a number from the reply to INFO; -1 if it is not there.
func field(info any, name string) int64 {
	text, _ := info.(string)
	_, rest, _ := strings.Cut(text, name+":")
	digits, _, _ := strings.Cut(rest, "\r\n")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

const unlock = `if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('publish', ARGV[2], 'free') return redis.call('del', KEYS[1]) end return 0`

// contend has the busy clients take and release locks. A counter for each lock shows
// whether two clients hold it at the same time.
func (p *plan) contend(first *respclient.Conn) (int64, error) {
	var taken atomic.Int64
	var once sync.Once
	var reason error
	end := time.Now().Add(p.last)
	holders := make([]atomic.Int32, p.locks)
	var wg sync.WaitGroup
	for i := range p.busy {
		c, err := respclient.Dial(p.listen, dialTimeout)
		if err != nil {
			return 0, fmt.Errorf("busy client %d: %w", i, err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer c.Close()
			if err := p.client(c, i, end, holders, &taken); err != nil {
				once.Do(func() { reason = fmt.Errorf("client %d: %w", i, err) })
			}
		}()
	}
	wg.Wait()
	info, err := first.Do("INFO", "clients")
	if err != nil {
		return 0, err
	}
	// The busy clients may have disconnected by now, but every subscriber must still be there.
	if n := field(info, "connected_clients"); n < int64(len(p.subscribers)) {
		return 0, fmt.Errorf("%d clients are connected, of %d subscribers", n, len(p.subscribers))
	}
	return taken.Load(), reason
}

// client takes and releases one lock again and again, until the time in the argument "end".
func (p *plan) client(c *respclient.Conn, i int, end time.Time, holders []atomic.Int32, taken *atomic.Int64) error {
	lock := i % p.locks
	key, channel, me := fmt.Sprintf("lock:%d", lock), fmt.Sprintf("channel:%d", lock), fmt.Sprintf("client:%d", i)
	for time.Now().Before(end) {
		got, err := c.Do("SET", key, me, "NX", "PX", leaseMillis)
		if err != nil {
			return err
		}
		if got == nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if holders[lock].Add(1) != 1 {
			return fmt.Errorf("%s has two holders", key)
		}
		taken.Add(1)
		holders[lock].Add(-1)
		if n, err := c.Do("EVAL", unlock, "1", key, me, channel); err != nil || n != int64(1) {
			return fmt.Errorf("release of %s: %v, %v", key, n, err)
		}
	}
	return nil
}
