package peers

import (
	"sync"

	"github.com/lockstep-io/lockstep/cluster/internal/raftnode"
)

// Positions holds how far the log of each member has come, as the members have reported it.
type Positions struct {
	mu      sync.Mutex
	known   map[string]uint64        // index that the log of each member has reached, by id
	asked   map[string]chan struct{} // members that are being asked, by id and address; a channel wakes the goroutine that asks
	waiting int                      // number of clients that wait at present (Begin)
	want    uint64                   // the highest target with which Ask was ever called
	waits   map[chan struct{}]uint64 // targets of the waiting clients, by the channel that Heard closes when a member reaches the target
}

// Heard notes that the log of a member has come to index, and wakes the clients whose targets it has thereby reached.
func (p *Positions) Heard(id string, index uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[string]uint64{}
	}
	old := p.known[id]
	if index <= old {
		return
	}
	p.known[id] = index
	for arrived, target := range p.waits {
		if old < target && target <= index {
			close(arrived)
			delete(p.waits, arrived)
		}
	}
}

// Reached counts the other members whose log has come to target. The channel arrived closes when one more has. The caller must
// call forget.
func (p *Positions) Reached(target uint64, members []raftnode.Member, self string) (n int, arrived <-chan struct{}, forget func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range members {
		if m.ID != self && p.known[m.ID] >= target {
			n++
		}
	}
	if p.waits == nil {
		p.waits = map[chan struct{}]uint64{}
	}
	wait := make(chan struct{})
	p.waits[wait] = target
	return n, wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waits, wait)
	}
}

// Ask runs the function ask, once at a time, for each other member below target. The channel wake tells it that a client waits.
func (p *Positions) Ask(target uint64, members []raftnode.Member, self string, ask func(m raftnode.Member, wake <-chan struct{})) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want = max(p.want, target)
	if p.asked == nil {
		p.asked = map[string]chan struct{}{}
	}
	for _, m := range members {
		if m.ID == self || p.known[m.ID] >= target {
			continue
		}
		key := m.ID + " " + m.PeerAddr
		wake, is := p.asked[key]
		if !is {
			wake = make(chan struct{}, 1)
			p.asked[key] = wake
			go func() {
				ask(m, wake)
				p.mu.Lock()
				delete(p.asked, key)
				p.mu.Unlock()
			}()
		}
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// Begin notes that a client has begun to wait. The function end notes that it waits no more.
func (p *Positions) Begin() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.waiting--
	}
}

// Wants reports whether a client waits and the member has not reported the highest target of all calls of Ask.
func (p *Positions) Wants(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting > 0 && p.known[id] < p.want
}
