package peers

import (
	"sync"

	"lockstep/cluster/internal/raftnode"
)

// Positions is how far the log of each member has come, as far as members have told.
type Positions struct {
	mu      sync.Mutex
	known   map[string]uint64        // by id
	asked   map[string]chan struct{} // members that are being asked, by id and address; the channels wake those who ask
	waiting int                      // clients that wait …
	want    uint64                   // … and the highest index that one of them has waited for
	changed chan struct{}            // closed when known changes; nil: nobody waits for that
}

// Heard notes a position.
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
	if p.changed != nil && old < p.want { // or nobody waits for it
		close(p.changed)
		p.changed = nil
	}
}

// Reached counts the members, but for one, that have come so far. changed is closed when there may be more.
func (p *Positions) Reached(target uint64, members []raftnode.Member, self string) (n int, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range members {
		if m.ID != self && p.known[m.ID] >= target {
			n++
		}
	}
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return n, p.changed
}

// Ask has other members asked until they have come so far: ask is called for each one that is not being asked, on a goroutine
// of its own. wake then tells it that somebody waits.
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

// Begin notes that a client waits, and end that it does not any more.
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

// Wants reports whether a member has not told yet that it has come as far as a client waits for.
func (p *Positions) Wants(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting > 0 && p.known[id] < p.want
}
