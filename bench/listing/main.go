// Listing shows what LOCK.LIST costs other clients while there are very many locks.
//
//	go build -o lockstep ./cmd/lockstep
//	go -C bench run ./listing -server ../lockstep [-locks 1000000] [-clients 10] [-rounds 5] [-for 3s]
//
// It starts a durable node of its own on loopback, and takes the locks. Then clients lock and unlock other names, in rounds that take turns:
// alone; beside a client that lists all locks, page by page; and beside one that asks for the oldest locks (SORT age). It prints the median of
// the rounds, and by how much the node's resident memory has grown.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockstep-io/lockstep/conformance/environ"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const (
	lease       = "86400000"
	dialTimeout = 10 * time.Second
	unlock      = `if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`
)

type plan struct {
	server, listen         string
	locks, clients, rounds int
	each                   time.Duration
}

func main() {
	var p plan
	flag.StringVar(&p.server, "server", "", "the lockstep program")
	flag.StringVar(&p.listen, "listen", "127.0.0.1:26379", "address for the node")
	flag.IntVar(&p.locks, "locks", 1_000_000, "locks that are held")
	flag.IntVar(&p.clients, "clients", 10, "clients that lock and unlock")
	flag.IntVar(&p.rounds, "rounds", 5, "rounds of each kind")
	flag.DurationVar(&p.each, "for", 3*time.Second, "how long a round takes")
	flag.Parse()
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "listing:", err)
		os.Exit(1)
	}
}

// beside are what another client does meanwhile.
var beside = []struct {
	name string
	list func(c *respclient.Conn) error
}{
	{"alone", nil},
	{"beside LOCK.LIST, page by page", listAll},
	{"beside LOCK.LIST SORT age", func(c *respclient.Conn) error { _, err := c.Do("LOCK.LIST", "SORT", "age", "COUNT", "100"); return err }},
}

func (p *plan) run() error {
	if p.server == "" {
		return errors.New("-server is missing: build cmd/lockstep first")
	}
	dir, err := os.MkdirTemp("", "listing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	node := exec.Command(p.server, "--data", filepath.Join(dir, "data"), "--listen", p.listen, "--http-listen", "")
	node.Env, node.Stderr = environ.Environ(), os.Stderr
	if err := node.Start(); err != nil {
		return err
	}
	defer func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	}()
	if err := p.take(); err != nil {
		return err
	}
	before, err := resident(node.Process.Pid)
	if err != nil {
		return err
	}
	got := make([][]round, len(beside))
	most := before
	for range p.rounds {
		for i := range beside {
			r, err := p.round(beside[i].list)
			if err != nil {
				return fmt.Errorf("%s: %w", beside[i].name, err)
			}
			got[i] = append(got[i], r)
			now, err := resident(node.Process.Pid)
			if err != nil {
				return err
			}
			most = max(most, now)
		}
	}
	base := median(got[0], func(r round) time.Duration { return r.p99 })
	fmt.Printf("%d locks held, %d clients, medians of %d rounds of %v\n", p.locks, p.clients, p.rounds, p.each)
	for i, b := range beside {
		p99 := median(got[i], func(r round) time.Duration { return r.p99 })
		fmt.Printf("%-32s %7d cycles/s, p50 %v, p99 %v (%.2f x alone), %d lists\n", b.name, median(got[i], func(r round) int { return r.perSecond }),
			median(got[i], func(r round) time.Duration { return r.p50 }).Round(time.Microsecond), p99.Round(time.Microsecond), float64(p99)/float64(base),
			median(got[i], func(r round) int { return r.lists }))
	}
	fmt.Printf("resident memory of the node: %d MiB before, %d MiB at most\n", before>>20, most>>20)
	return nil
}

// take takes the locks, many at a time.
func (p *plan) take() error {
	var conn net.Conn
	var err error
	for range 100 {
		if conn, err = net.DialTimeout("tcp", p.listen, dialTimeout); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond) // the node is starting
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	const part = 1000
	r, w := bufio.NewReader(conn), bufio.NewWriter(conn)
	for i := 0; i < p.locks; i += part {
		n := min(part, p.locks-i)
		for j := range n {
			command(w, "SET", fmt.Sprintf("held:%07d", i+j), fmt.Sprintf("6f1ed002-ab5d-4b3a-9f0a-%012d", i+j), "NX", "PX", lease)
		}
		if err := w.Flush(); err != nil {
			return err
		}
		for range n {
			line, err := r.ReadString('\n')
			if err != nil || line != "+OK\r\n" {
				return fmt.Errorf("%q, %v", line, err)
			}
		}
	}
	return nil
}

func command(w *bufio.Writer, args ...string) {
	fmt.Fprintf(w, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(w, "$%d\r\n%s\r\n", len(a), a)
	}
}

// round is the result of one round.
type round struct {
	perSecond, lists int
	p50, p99         time.Duration
}

func (p *plan) round(list func(c *respclient.Conn) error) (round, error) {
	var stop atomic.Bool
	var mu sync.Mutex
	var took []time.Duration
	var faults error
	fail := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		faults = errors.Join(faults, err)
	}
	lists := 0
	var all sync.WaitGroup
	if list != nil {
		all.Go(func() {
			c, err := respclient.Dial(p.listen, dialTimeout)
			if err != nil {
				fail(err)
				return
			}
			defer c.Close()
			for ; !stop.Load(); lists++ {
				if err := list(c); err != nil {
					fail(err)
					return
				}
			}
		})
	}
	for i := range p.clients {
		all.Go(func() {
			c, err := respclient.Dial(p.listen, dialTimeout)
			if err != nil {
				fail(err)
				return
			}
			defer c.Close()
			var own []time.Duration
			for n := 0; !stop.Load(); n++ {
				name, owner := "busy:"+strconv.Itoa(i), strconv.Itoa(n)
				began := time.Now()
				if _, err := c.Do("SET", name, owner, "NX", "PX", lease); err != nil {
					fail(err)
					return
				}
				if _, err := c.Do("EVAL", unlock, "1", name, owner); err != nil {
					fail(err)
					return
				}
				own = append(own, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
		})
	}
	time.Sleep(p.each)
	stop.Store(true)
	all.Wait()
	if faults != nil || len(took) == 0 {
		return round{}, cmp.Or(faults, errors.New("no cycle has ended"))
	}
	slices.Sort(took)
	return round{int(float64(len(took)) / p.each.Seconds()), lists, took[len(took)/2], took[len(took)*99/100]}, nil
}

// listAll reads all pages of LOCK.LIST.
func listAll(c *respclient.Conn) error {
	for cursor := "0"; ; {
		reply, err := c.Do("LOCK.LIST", "CURSOR", cursor, "COUNT", "1000")
		if err != nil {
			return err
		}
		page, _ := reply.([]any)
		if len(page) != 2 {
			return fmt.Errorf("unexpected reply %.100v", reply)
		}
		if cursor, _ = page[0].(string); cursor == "0" || cursor == "" {
			return nil
		}
	}
}

func median[T cmp.Ordered](list []round, of func(round) T) T {
	var values []T
	for _, r := range list {
		values = append(values, of(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// resident returns the resident memory of a process in bytes.
func resident(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseInt(kib, 10, 64)
	return n << 10, err
}
