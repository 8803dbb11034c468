package kills

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/conformance/judge"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/server/respclient"
)

const (
	clients = 50
	// think is the mean pause of a client. It keeps a small machine busy, but does not saturate it.
	think = 25 * time.Millisecond
	// limit bounds every wait for something that must happen.
	limit = 60 * time.Second
)

// run is a run of three nodes under load.
type run struct {
	t       *testing.T
	seed    uint64
	pause   time.Duration
	places  []*place
	judge   *judge.Judge
	holders *judge.Holders
	tokens  *judge.Tokens
	gate    sync.RWMutex // locked for writing while the load stands still
	began   time.Time

	stopped atomic.Bool // the clients finish what they have begun …
	failed  atomic.Bool // … or give up at once
	work    sync.WaitGroup

	mu      sync.Mutex
	round   *round
	held    []*judge.Lease
	since   time.Time     // longest counts waits since this time
	longest time.Duration // the longest wait of a client for a reply …
	except  *place        // … not counting the clients of this node
}

// start starts three nodes and the clients.
func start(t *testing.T, seed uint64) *run {
	t.Helper()
	r := &run{t: t, seed: seed, pause: think, judge: judge.New(t.Logf), round: newRound(0), began: time.Now()}
	r.holders, r.tokens = judge.NewHolders(r.judge), judge.NewTokens(r.judge)
	for _, n := range nodes.Start(t, 3) {
		r.places = append(r.places, &place{Node: n})
	}
	for i := range clients {
		c := newClient(r, i, r.places[i%len(r.places)])
		r.work.Add(1)
		go func() {
			defer r.work.Done()
			c.work()
			if c.conn != nil {
				c.conn.Close()
			}
		}()
	}
	t.Cleanup(func() {
		r.stopped.Store(true)
		r.failed.Store(true)
		r.work.Wait()
	})
	r.until("every client holds a lock", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.held) == clients
	})
	return r
}

func (r *run) over() bool { return r.stopped.Load() }

// begin counts a command as part of the present round.
func (r *run) begin() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.round.pending.Add(1)
	return r.round
}

// holds adds a lock to the list of those that are never released.
func (r *run) holds(l *judge.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = append(r.held, l)
}

// waited records how long a client had to wait for a reply.
func (r *run) waited(at *place, sent time.Time) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if at != r.except && now.After(r.since) {
		r.longest = max(r.longest, now.Sub(sent))
	}
}

// watch calls the function do. It returns the longest wait for a reply meanwhile, except at one node.
func (r *run) watch(except *place, do func()) time.Duration {
	r.mu.Lock()
	r.since, r.longest, r.except = time.Now(), 0, except
	r.mu.Unlock()
	do()
	time.Sleep(250 * time.Millisecond) // clients that began to wait while do ran get their answers
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.longest
}

// until waits for something that must happen.
func (r *run) until(what string, done func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("%v have passed before %s", limit, what)
		}
	}
}

// leader returns the place whose node says that it leads.
func (r *run) leader() (leader *place) {
	r.t.Helper()
	r.until("a node led", func() bool {
		for _, p := range r.places {
			if st, err := p.Status(); err == nil && st["role"] == "leader" {
				leader = p
			}
		}
		return leader != nil
	})
	return leader
}

// others returns all places except one.
func (r *run) others(not *place) (list []*place) {
	for _, p := range r.places {
		if p != not {
			list = append(list, p)
		}
	}
	return list
}

// dial makes a connection for the run itself, not for one of its clients.
func (r *run) dial(p *place) *respclient.Conn {
	r.t.Helper()
	c, err := respclient.Dial(p.Addr, patience)
	if err != nil {
		r.t.Fatalf("%s: %v", p.ID, err)
	}
	return c
}

// turn ends the present round and judges it through a node.
func (r *run) turn(p *place) {
	r.t.Helper()
	c := r.dial(p)
	defer c.Close()
	r.mu.Lock()
	old := r.round
	r.round = newRound(old.number + 1)
	r.mu.Unlock()
	old.pending.Wait()
	var list []string
	got := r.ask(c, "LRANGE", old.list(), "0", "-1")
	elems, _ := got.([]any)
	for _, e := range elems {
		list = append(list, fmt.Sprint(e))
	}
	total, _ := r.ask(c, "INCRBY", old.counter(), "0").(int64)
	old.close(r.judge, list, total)
	r.ask(c, "DEL", old.list(), old.counter())
}

// ask sends a command that must be answered.
func (r *run) ask(c *respclient.Conn, args ...string) any {
	r.t.Helper()
	got, err := c.Do(args...)
	if err != nil {
		r.t.Errorf("%v: %v", args, err)
	}
	return got
}

// checkHeld checks every lock that is never released. Its owner must still have it, with enough of the lease left, and nobody else
// may get it.
func (r *run) checkHeld(c *respclient.Conn, thief int) {
	r.t.Helper()
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	query := []string{"MGET"}
	for _, l := range held {
		query = append(query, l.Key)
	}
	owners, _ := r.ask(c, query...).([]any)
	if len(owners) != len(held) {
		r.t.Errorf("MGET of %d locks: %v", len(held), owners)
		return
	}
	for i, l := range held {
		if owners[i] != l.Owner {
			r.judge.Fault(judge.LockLost, "%s: owner %v, not %s", l.Key, owners[i], l.Owner)
		}
	}
	l := held[thief%len(held)]
	if left, ok := r.ask(c, "PTTL", l.Key).(int64); ok {
		l.Remains(r.judge, left, time.Now())
	}
	r.told(l.Key, l.Owner, r.ask(c, "LOCK.TOKEN", l.Key, "OWNER", l.Owner))
	if got := r.ask(c, "SET", l.Key, "thief", "NX", "PX", "60000"); got != nil {
		r.judge.Fault(judge.TwoHolders, "%s was granted to a thief while %s held it: %v", l.Key, l.Owner, got)
	}
	r.judge.Count("held locks looked at", len(held))
}

// told passes the token of a held lock to the judge.
func (r *run) told(key, hold string, token any) {
	if n, ok := token.(int64); ok {
		r.tokens.Is(key, hold, n)
	} else {
		r.judge.Fault(judge.LockLost, "%s: %s holds it, and its token is %v", key, hold, token)
	}
}

// same stops the load until all nodes have applied the same entries, and compares the hashes of their states.
func (r *run) same() {
	r.t.Helper()
	r.gate.Lock()
	defer r.gate.Unlock()
	r.until("all nodes had a state of the same index", func() bool {
		var at, hashes []string
		for _, p := range r.places {
			st, err := p.Status()
			if err != nil {
				r.t.Fatalf("%s: %v", p.ID, err)
			}
			// The field "applied" cannot be used here: Raft counts an entry there as soon as it hands the entry to the state
			// machine.
			at, hashes = append(at, st["state-index"]), append(hashes, st["state-hash"])
		}
		if at[0] == "" || at[0] != at[1] || at[0] != at[2] {
			return false
		}
		if hashes[0] == "" || hashes[0] != hashes[1] || hashes[0] != hashes[2] {
			r.judge.Fault(judge.StateDiffers, "at index %s: %q", at[0], hashes)
		}
		return true
	})
	r.judge.Count("comparisons of the three states", 1)
}

// finish stops the clients and returns the report. No lock may be left behind.
func (r *run) finish() *report {
	r.t.Helper()
	r.stopped.Store(true)
	r.work.Wait()
	r.turn(r.places[0])
	c := r.dial(r.places[0])
	defer c.Close()
	for i := range mutexes {
		for _, key := range []string{fmt.Sprintf("mutex:%d", i), fmt.Sprintf("reentrant:%d", i)} {
			if r.ask(c, "EXISTS", key) != int64(0) {
				r.judge.Fault(judge.RanTwice, "%s is held although every client has released what it took", key)
			}
		}
	}
	r.same()
	found, told := r.judge.Found()
	return &report{Clients: clients, Seconds: time.Since(r.began).Seconds(),
		Operations: r.judge.Counted(), Faults: found, Told: told}
}
