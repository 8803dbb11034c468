package web

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

const (
	// loginBurst is how many attempts to log in an address may make at once, and loginEvery how long each takes to be forgotten.
	loginBurst = 10
	loginEvery = 3 * time.Second
	// mostOrigins is how many addresses the throttle remembers. With more, it forgets the one that has the most room.
	mostOrigins = 1024
)

// throttle bounds the attempts to log in from each address. It keeps for each the time at which all its attempts are forgotten.
type throttle struct {
	mu   sync.Mutex
	free map[netip.Addr]time.Duration
}

// allow notes an attempt, unless there were too many.
func (t *throttle) allow(now time.Duration, remote string) bool {
	from := origin(remote)
	t.mu.Lock()
	defer t.mu.Unlock()
	at := max(t.free[from], now)
	if at-now > (loginBurst-1)*loginEvery {
		return false
	}
	if _, known := t.free[from]; !known && len(t.free) >= mostOrigins {
		t.forget(now)
	}
	t.free[from] = at + loginEvery
	return true
}

// forget drops the addresses without attempts to remember; if there are none, the address that will be first.
func (t *throttle) forget(now time.Duration) {
	var first netip.Addr
	least := time.Duration(-1)
	for from, at := range t.free {
		if at <= now {
			delete(t.free, from)
		} else if least < 0 || at < least {
			first, least = from, at
		}
	}
	if len(t.free) >= mostOrigins {
		delete(t.free, first)
	}
}

// origin returns an IPv4 address, or the network of 64 bits of an IPv6 address: one client may have all of them.
func origin(remote string) netip.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	addr := at.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if net, err := addr.Prefix(64); err == nil {
			return net.Addr()
		}
	}
	return addr
}

func addrOf(remote string) net.Addr {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return &net.TCPAddr{}
	}
	return net.TCPAddrFromAddrPort(at)
}
