package cluster

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/store"
)

// blockOn runs a blocking command on a node and waits for its reply.
func blockOn(n *Node, line string) store.Reply {
	var args [][]byte
	for _, w := range strings.Fields(line) {
		args = append(args, []byte(w))
	}
	cmd, _ := n.cfg.Table.Resolve(args)
	done := make(chan store.Reply, 1)
	n.Block(&Blocked{Call: Call{Cmd: cmd, Args: args, RESP: 2}, Done: func(r store.Reply) { done <- r }})
	n.Flush()
	return <-done
}

// delivery is producers and consumers on several nodes.
type delivery struct {
	c         *three
	producing atomic.Bool
	producers sync.WaitGroup
	consumers sync.WaitGroup

	mu     sync.Mutex
	pushed map[string]string // what the producer was told, by element
	taken  map[string]int
	count  atomic.Int64 // elements taken
}

func (d *delivery) produce(node int) {
	d.producers.Go(func() {
		n := d.c.nodes[node]
		for i := 0; d.producing.Load(); i++ {
			elem := fmt.Sprintf("n%d:%d", node+1, i)
			got := lines(d.c.t, n, fmt.Sprintf("RPUSH queue%d %s", i%2, elem))
			d.mu.Lock()
			d.pushed[elem] = got
			d.mu.Unlock()
			time.Sleep(ms)
		}
	})
}

// consume takes elements until it gets the element "stop".
func (d *delivery) consume(node int, commands ...string) {
	d.consumers.Go(func() {
		n := d.c.nodes[node]
		for i := 0; ; i++ {
			r := blockOn(n, commands[i%len(commands)])
			switch {
			case r.Kind == store.NullArray:
				continue
			case len(r.Elems) != 2:
				d.c.t.Errorf("n%d: %q", node+1, text([]store.Reply{r}))
				return
			}
			elem := r.Elems[1].Str
			if elem == "stop" {
				return
			}
			d.mu.Lock()
			d.taken[elem]++
			d.mu.Unlock()
			d.count.Add(1)
		}
	})
}

// more waits until the consumers have taken count more elements.
func (d *delivery) more(count int64) {
	d.c.t.Helper()
	from := d.count.Load()
	d.c.until("elements to be taken", func() bool { return d.count.Load() >= from+count })
}

// finish stops everybody. It requires that no element was taken twice, and that each acknowledged element was taken or is still
// queued.
func (d *delivery) finish(ask, consumers int) {
	d.c.t.Helper()
	d.producing.Store(false)
	d.producers.Wait()
	for range consumers {
		if got := d.c.do(ask, "RPUSH queue0 stop"); strings.HasPrefix(got, "-") {
			d.c.t.Fatalf("the end of the queue: %q", got)
		}
	}
	d.consumers.Wait()
	left := d.c.do(ask, "LRANGE queue0 0 -1", "LRANGE queue1 0 -1")
	for elem, got := range d.pushed {
		n := d.taken[elem]
		if strings.Contains(left, elem+" ") || strings.Contains(left, elem+"]") {
			n++
		}
		acknowledged := !strings.HasPrefix(got, "-")
		if n > 1 || acknowledged && n != 1 || strings.HasPrefix(got, "-CLUSTERDOWN") && n != 0 {
			d.c.t.Errorf("%s was delivered %d times; its push was told %q", elem, n, got)
		}
	}
	for elem := range d.taken {
		if _, known := d.pushed[elem]; !known {
			d.c.t.Errorf("%s was taken, and never pushed", elem)
		}
	}
}

// When leadership changes and a leader dies, each element goes to exactly one consumer on the other nodes.
func TestEachElementIsDeliveredOnce(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	leader := c.leader()
	survivors := []int{(leader + 1) % 3, (leader + 2) % 3}
	d := &delivery{c: c, pushed: map[string]string{}, taken: map[string]int{}}
	d.producing.Store(true)
	consumers := 0
	for _, i := range survivors {
		d.produce(i)
		for range 4 {
			d.consume(i, "BLPOP queue0 queue1 0", "BRPOP queue1 queue0 0.01", "BLPOP queue0 queue1 5")
			consumers++
		}
	}
	d.more(50)
	c.transfer(c.nodes[leader], survivors[0])
	d.more(50)
	c.transfer(c.nodes[survivors[0]], leader)
	d.more(50)
	c.crash(leader)
	d.more(50)
	d.finish(survivors[0], consumers)
	c.same()
}

// When a leader falls silent and is replaced, clients that waited there through other nodes wait on at the next leader, with the
// same timeouts.
func TestBlockedBehindASilentLeader(t *testing.T) {
	c, w := wired(t)
	c.start(0, 1, 2)
	leader := c.leader()
	others := []int{(leader + 1) % 3, (leader + 2) % 3}
	var got [2]chan string
	for i, args := range [][][]byte{{[]byte("BLPOP"), []byte("list"), []byte("0")}, {[]byte("BLPOP"), []byte("other"), []byte("0.5")}} {
		n := c.nodes[others[i]]
		got[i] = make(chan string, 1)
		cmd, _ := n.cfg.Table.Resolve(args)
		b := &Blocked{Call: Call{Cmd: cmd, Args: args, RESP: 2}, Done: func(r store.Reply) { got[i] <- text([]store.Reply{r}) }}
		n.Block(b)
		n.Flush()
		c.until("it to wait", func() bool {
			n.blockRegistry.mu.Lock()
			defer n.blockRegistry.mu.Unlock()
			return b.waits
		})
	}
	w.cut([]string{c.cfg[leader].ID}, []string{c.cfg[others[0]].ID, c.cfg[others[1]].ID})
	c.expect(others[1], "1", "RPUSH list x")
	// The clients must get their replies well before their nodes give up the old link, which they do after twice FailoverWait
	// (retire).
	limit := time.After(c.cfg[0].FailoverWait / 2)
	for i, want := range []string{"[list x]", text([]store.Reply{store.WaitTimedOut})} {
		select {
		case s := <-got[i]:
			if s != want {
				t.Errorf("n%d: got %q, want %q", others[i]+1, s, want)
			}
		case <-limit:
			t.Fatalf("n%d: still waits for the old leader", others[i]+1)
		}
	}
}

// many are blocking commands on all three nodes.
type many struct {
	c      *three
	list   []*Blocked
	served atomic.Int64
}

// block begins count commands, spread over ten keys.
func (m *many) block(count int) {
	m.c.t.Helper()
	for i := range count {
		n := m.c.nodes[i%3]
		args := [][]byte{[]byte("BLPOP"), fmt.Appendf(nil, "key%d", i/3%10), []byte("1000")}
		cmd, _ := n.cfg.Table.Resolve(args)
		b := &Blocked{Call: Call{Cmd: cmd, Args: args, RESP: 2}, Done: func(store.Reply) { m.served.Add(1) }}
		n.Block(b)
		n.Flush()
		m.list = append(m.list, b)
	}
	m.c.until("all to wait", func() bool {
		waiting := 0
		for i, b := range m.list {
			k := m.c.nodes[i%3].blockRegistry
			k.mu.Lock()
			if b.waits {
				waiting++
			}
			k.mu.Unlock()
		}
		return waiting == len(m.list)
	})
}

// Many clients can wait at any node. Those that have left take no element.
func TestManyBlockedClients(t *testing.T) {
	c := startThree(t)
	c.start(0, 1, 2)
	m := &many{c: c}
	m.block(3000)
	for i := range 10 {
		c.do(i%3, fmt.Sprintf("RPUSH key%d a b c d e", i))
	}
	c.until("some to be served", func() bool { return m.served.Load() == 50 })
	for i, b := range m.list {
		c.nodes[i%3].Abandon(b)
	}
	m.list = nil
	// The new commands come over the same links as those of the clients that have left, and after them.
	m.block(30)
	for i := range 10 {
		c.do(i%3, fmt.Sprintf("RPUSH key%d a b c", i))
	}
	c.until("all to be served", func() bool { return m.served.Load() == 80 })
	c.expect(0, "0", "EXISTS key0 key1 key2 key3 key4 key5 key6 key7 key8 key9")
}
