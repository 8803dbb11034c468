package peerport

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Strangers logs calls between nodes that one side has refused or could not accept: the first for each reason, and then the number each
// strangersPeriod.
type Strangers struct {
	log   *slog.Logger
	Total atomic.Uint64 // number of callers that this node has turned away

	mu   sync.Mutex
	more map[turnedAway]*strangersSince
	done bool
}

const strangersPeriod = time.Minute

// turnedAway is the reason why a call failed. There are few reasons, so the map Strangers.more stays small.
type turnedAway string

const (
	noPeer       turnedAway = "Not a peer: clients use the port of --listen"
	noTLSHere    turnedAway = "A caller speaks TLS, and this node has been given nothing to prove itself with: set --peer-secret-file or --peer-tls-cert-file on all nodes"
	noTLSThere   turnedAway = "A caller does not speak TLS, which this node requires of its peers (--peer-tls)"
	notTrusted   turnedAway = "A caller has not proved that it is a peer"
	tooSlow      turnedAway = "A caller did not say in time what it wants"
	tooMany      turnedAway = "Too many callers at once that have not proved to be peers: the oldest was cut off"
	BadHandshake turnedAway = "A caller's handshake cannot be read"
	OlderPeer    turnedAway = "A peer runs an earlier version"
	NewerPeer    turnedAway = "A peer runs a later version"

	peerRefuses   turnedAway = "A peer does not take this node for one"
	PeerUntrusted turnedAway = "What answers at a peer's address has not proved that it is one"
	notAccepted   turnedAway = "Cannot accept a caller: the process may be out of file descriptors"
)

// theirs reports whether this node turned away a caller. Other reasons are for its own calls, and for callers not accepted.
func (t turnedAway) theirs() bool { return t != peerRefuses && t != PeerUntrusted && t != notAccepted }

type strangersSince struct {
	count int
	last  string
	err   error
	timer *time.Timer
}

func newStrangers(log *slog.Logger) *Strangers {
	return &Strangers{log: log, more: map[turnedAway]*strangersSince{}}
}

// Note counts one call that failed for the reason in the parameter why, and logs the first such call; the function sum logs
// further ones.
func (s *Strangers) Note(why turnedAway, remote string, err error) {
	if why.theirs() {
		s.Total.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	if m := s.more[why]; m != nil {
		m.count++
		m.last, m.err = remote, err
		return
	}
	s.say(why, remote, 1, err)
	s.more[why] = &strangersSince{timer: time.AfterFunc(strangersPeriod, func() { s.sum(why) })}
}

// sum logs how many more calls failed for the reason why. If there were none, Note logs the next at once.
func (s *Strangers) sum(why turnedAway) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.more[why]
	if s.done || m == nil {
		return
	}
	if m.count == 0 {
		delete(s.more, why)
		return
	}
	s.say(why, m.last, m.count, m.err)
	m.count = 0
	m.timer.Reset(strangersPeriod)
}

func (s *Strangers) say(why turnedAway, remote string, count int, err error) {
	args := []any{"remote", remote, "count", count}
	if err != nil {
		args = append(args, "error", err)
	}
	s.log.Warn("Peer port: "+string(why), args...)
}

func (s *Strangers) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	for _, m := range s.more {
		m.timer.Stop()
	}
}
