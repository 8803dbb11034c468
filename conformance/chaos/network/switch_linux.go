package network

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"time"
)

// Link says what happens to packets on the way from one host to another. The zero value is a good link.
type Link struct {
	Cut       bool
	Loss      float64       // probability that a packet is lost
	Duplicate float64       // probability that a packet arrives twice
	Delay     time.Duration // of every packet
	Jitter    time.Duration // the most that is added to Delay, at random: packets overtake each other
}

// pair is a direction between two hosts.
type pair struct{ from, to netip.Addr }

// Switch carries packets between its hosts.
type Switch struct {
	mu    sync.Mutex
	hosts map[netip.Addr]*Host
	links map[pair]Link
	rng   *rand.Rand
	late  parcels
	wake  chan struct{}
	stop  chan struct{}
	wg    sync.WaitGroup

	carried, dropped uint64
}

// NewSwitch makes a network without hosts. The seed decides which packets a
// lossy link loses.
func NewSwitch(seed uint64) *Switch {
	s := &Switch{hosts: map[netip.Addr]*Host{}, links: map[pair]Link{}, rng: rand.New(rand.NewPCG(seed, 1)),
		wake: make(chan struct{}, 1), stop: make(chan struct{})}
	s.wg.Go(s.deliverLate)
	return s
}

// Add makes a host and plugs it in.
func (s *Switch) Add(addr netip.Addr) (*Host, error) {
	h, err := newHost(addr)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.hosts[addr] = h
	s.mu.Unlock()
	s.wg.Go(func() { s.carry(h) })
	return h, nil
}

// Remove unplugs a host. No process of that host may run any more.
func (s *Switch) Remove(addr netip.Addr) error {
	s.mu.Lock()
	h := s.hosts[addr]
	delete(s.hosts, addr)
	s.mu.Unlock()
	return h.close()
}

// Close unplugs everything.
func (s *Switch) Close() error {
	close(s.stop)
	var faults []error
	for _, h := range s.hosts {
		faults = append(faults, h.close())
	}
	s.wg.Wait()
	return errors.Join(faults...)
}

// Set changes one direction between two hosts.
func (s *Switch) Set(from, to netip.Addr, l Link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.links[pair{from, to}] = l
}

// Heal makes all links good.
func (s *Switch) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.links)
}

// Packets returns how many packets were carried and how many were lost.
func (s *Switch) Packets() (carried, dropped uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.carried, s.dropped
}

// carry takes the packets that a host sends.
func (s *Switch) carry(h *Host) {
	buf := make([]byte, 1<<16)
	for {
		n, err := h.tun.Read(buf)
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			panic(fmt.Sprintf("chaos network: reading from %v: %v", h.Addr, err))
		}
		packet := buf[:n]
		if n < 20 || packet[0]>>4 != 4 {
			continue // an IPv6 packet that looks for neighbours
		}
		to := netip.AddrFrom4([4]byte(packet[16:20]))
		s.forward(pair{h.Addr, to}, packet)
	}
}

// forward delivers a packet, keeps a copy of it for later, or loses it.
func (s *Switch) forward(way pair, packet []byte) {
	s.mu.Lock()
	to, l := s.hosts[way.to], s.links[way]
	if to == nil || l.Cut || l.Loss > 0 && s.rng.Float64() < l.Loss {
		s.dropped++
		s.mu.Unlock()
		return
	}
	s.carried++
	copies := 1
	if l.Duplicate > 0 && s.rng.Float64() < l.Duplicate {
		copies = 2
	}
	if l.Delay == 0 && l.Jitter == 0 {
		s.mu.Unlock()
		for range copies {
			to.deliver(packet)
		}
		return
	}
	for range copies {
		due := time.Now().Add(l.Delay)
		if l.Jitter > 0 {
			due = due.Add(time.Duration(s.rng.Int64N(int64(l.Jitter))))
		}
		heap.Push(&s.late, parcel{due, to, append([]byte(nil), packet...)})
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// deliver hands a packet to the host. If the TUN device is full or dead, the packet is lost, as on a real network.
func (h *Host) deliver(packet []byte) { _, _ = h.tun.Write(packet) }

// deliverLate delivers what a slow link has kept.
func (s *Switch) deliverLate() {
	timer := time.NewTimer(time.Hour)
	for {
		s.mu.Lock()
		now, next := time.Now(), time.Hour
		for len(s.late) > 0 {
			if next = s.late[0].due.Sub(now); next > 0 {
				break
			}
			p := heap.Pop(&s.late).(parcel)
			p.to.deliver(p.packet)
			next = time.Hour
		}
		s.mu.Unlock()
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-s.wake:
		case <-s.stop:
			return
		}
	}
}

// parcel is a packet on a slow link; parcels is a heap of them by time.
type parcel struct {
	due    time.Time
	to     *Host
	packet []byte
}

type parcels []parcel

func (p parcels) Len() int           { return len(p) }
func (p parcels) Less(i, j int) bool { return p[i].due.Before(p[j].due) }
func (p parcels) Swap(i, j int)      { p[i], p[j] = p[j], p[i] }
func (p *parcels) Push(x any)        { *p = append(*p, x.(parcel)) }
func (p *parcels) Pop() any {
	old := *p
	x := old[len(old)-1]
	*p = old[:len(old)-1]
	return x
}
