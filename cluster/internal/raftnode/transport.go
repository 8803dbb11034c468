package raftnode

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lockstep-io/lockstep/cluster/internal/datadir"
	"github.com/lockstep-io/lockstep/cluster/internal/peerport"
)

// transport is hashicorp/raft's transport with a few changes. It notes who has accepted requests (verify.go), bounds how much
// Raft applies at once (replay.go), and answers no heartbeat after it is closed. After a broken kept connection it repeats the
// request, unless that is a snapshot: a lost vote request could fail an election. Peers tolerate any request that comes twice.
type transport struct {
	*raft.NetworkTransport
	beats     *raft.NetworkTransport // sends heartbeats by Raft's own protocol, with a short timeout
	appends   *appender              // sends entries in the codec of append.go
	beating   *appender              // sends heartbeats in that codec
	patience  time.Duration          // timeout of TimeoutNow
	silence   time.Duration          // silence after which this node holds pre-votes (prevote.go)
	strangers *peerport.Strangers
	port      *peerport.Port
	redials   sync.Map // of raft.ServerAddress to time.Duration: when redial last hung up

	beatHandler atomic.Pointer[func(raft.RPC)]

	self      string        // id of this node
	addr      string        // address of its peer port, as the others know it
	directory string        // name of this node's data directory (directory.go)
	cluster   func() string // returns the name of the cluster; "" if it is not known
	meet      func(id, directory, addr []byte) error

	replicates atomic.Bool // this node has sent entries

	// Set before the first request is accepted.
	log     *datadir.Log                    // nil in tests: then requests are not checked against the log
	met     func(id, directory []byte) bool // reports whether a node was met as a member, with this directory
	vouched func(id string) bool            // reports whether other members say that a node is a member
	unbound func() bool                     // reports whether this node has yet to learn which cluster it joins (binding.go)
	claim   func(command any, cluster string) error
	refused *seldom

	time     TimeSource
	held     *heldVotes
	promises bool // this node makes promises to leaders (read_lease.go)
	listens  func() bool

	closing sync.RWMutex // held for reading while a heartbeat is answered
	deaf    bool         // the transport is closed; written with closing held

	mu    sync.Mutex
	steps uint64 // counter that orders calls of Verify and requests (step)
	acks  map[raft.ServerID]ack

	heard   map[raft.ServerID]uint64 // step of the last answer to a heartbeat
	matches map[raft.ServerID]matched

	audience map[raft.ServerID]*listener
	news     matched // the last committed entry that has messages

	raft atomic.Pointer[raft.Raft] // nil: Raft is being started

	progress progress
	requests chan raft.RPC // checked requests of peers, for Raft
	closed   chan struct{}
	stop     <-chan struct{} // closed before Raft is shut down
	close    sync.Once
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

func newTransport(port *peerport.Port, cfg *Config, logs hclog.Logger, stop <-chan struct{}, directory string, cluster func() string, meet func(id, directory, addr []byte) error) *transport {
	beatTimeout := 2 * cfg.HeartbeatTimeout
	t := &transport{port: port, strangers: cfg.Dialer.Strangers, self: cfg.ID, addr: cfg.Addr, directory: directory, cluster: cluster, meet: meet, patience: cfg.ElectionTimeout, silence: cfg.HeartbeatTimeout / 2, acks: map[raft.ServerID]ack{}, heard: map[raft.ServerID]uint64{}, matches: map[raft.ServerID]matched{},
		time: cfg.Time, held: newHeldVotes(cfg.Time.Monotonic), promises: cfg.LeaseReads, listens: cfg.Listens, audience: map[raft.ServerID]*listener{},
		requests: make(chan raft.RPC), closed: make(chan struct{}), stop: stop,
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: stream{port}, MaxPool: transportPool, Timeout: transportTimeout, Logger: logs,
			// No pipelining: when a pipeline ends, Raft's sending goroutine may wait for ever. With one batch in flight, there is
			// nothing to pipeline.
			MaxRPCsInFlight: 1,
		}),
		beats: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: outgoing{stream{port}}, MaxPool: 2, Timeout: beatTimeout, Logger: logs, MaxRPCsInFlight: 1,
		}),
		appends: newAppender(port, transportTimeout, cfg), beating: newAppender(port, beatTimeout, cfg)}
	return t
}

// stream gives the transport of hashicorp/raft the connections of its own protocol.
type stream struct{ *peerport.Port }

// Dial connects to a peer.
func (s stream) Dial(to raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return s.DialRaft(string(to), timeout)
}

// outgoing is a peer port for outgoing connections only. It serves heartbeats, which need a short timeout to notice dead
// connections soon after a partition.
type outgoing struct{ stream }

// Accept returns no connections: all incoming ones go to the other transport.
func (o outgoing) Accept() (net.Conn, error) {
	<-o.Done()
	return nil, net.ErrClosed
}

// Close leaves the port to its owner.
func (outgoing) Close() error { return nil }

// SetHeartbeatHandler sets what answers heartbeats. The function handle may write a term, so it is called only while the
// transport is open.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.beatHandler.Store(&handle)
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) { t.heartbeat(rpc, handle) })
}

func (t *transport) heartbeat(rpc raft.RPC, handle func(raft.RPC)) {
	if t.beat(rpc, handle) {
		return
	}
	select {
	case t.requests <- rpc:
	case <-t.closed:
		rpc.Respond(nil, raft.ErrRaftShutdown)
	}
}

// beat answers a heartbeat, or returns false if Raft's main goroutine must: beat must not write an older term after that
// goroutine has begun to write a later one.
func (t *transport) beat(rpc raft.RPC, handle func(raft.RPC)) (done bool) {
	t.closing.RLock()
	defer t.closing.RUnlock()
	if t.deaf {
		rpc.Respond(nil, raft.ErrRaftShutdown)
		return true
	}
	if err := t.admits(rpc); err != nil {
		rpc.Respond(nil, err)
		return true
	}
	if t.promises {
		t.held.promise()
	}
	r := t.raft.Load()
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok || r == nil || r.State() != raft.Follower || req.Term > r.CurrentTerm() {
		return false
	}
	handle(rpc)
	return true
}

// Close closes the transport. When it returns, no heartbeat is being answered, and none will be.
func (t *transport) Close() error {
	t.closing.Lock()
	t.deaf = true
	t.closing.Unlock()
	t.close.Do(func() { close(t.closed) })
	return errors.Join(t.beats.Close(), t.NetworkTransport.Close())
}

// RequestVote first waits until this node's promises are over, because the request means that this node votes for itself.
func (t *transport) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if !t.held.wait(t.closed) {
		return raft.ErrRaftShutdown
	}
	err := afresh(func() error { return t.NetworkTransport.RequestVote(id, to, args, resp) })
	if err == nil {
		err = t.knownAs(id, to, resp.RPCHeader, resp.Term, 0)
	}
	return t.redial(to, err)
}

func (t *transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	err := afresh(func() error { return t.NetworkTransport.RequestPreVote(id, to, args, resp) })
	if err == nil {
		err = t.knownAs(id, to, resp.RPCHeader, resp.Term, 0)
	}
	return t.redial(to, err)
}

// AppendEntries sends heartbeats and entries. It sends entries again until they arrive (resend.go).
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if heartbeat(args) {
		return t.exchange(id, to, args, resp, t.sender(t.beating, t.beats))
	}
	if t.log != nil {
		if err := t.log.LoadBatch(args, maxAppend); err != nil {
			return err
		}
		t.replicates.Store(true)
		if top := t.log.WrittenUpTo(args.LeaderCommitIndex); top < args.LeaderCommitIndex {
			capped := *args
			capped.LeaderCommitIndex = top
			args = &capped
		}
	}
	return t.deliver(id, to, args, resp)
}

// exchange sends a request once, checks the answer, and notes what the answer says of the peer.
func (t *transport) exchange(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse, send sendAppend) error {
	asked := t.asking(args.Term)
	err := send(id, to, args, resp)
	if err == nil {
		err = t.knownAs(id, to, resp.RPCHeader, resp.Term, resp.LastLog)
	}
	if err != nil {
		return t.redial(to, err)
	}
	if heartbeat(args) {
		t.answered(id)
	}
	if resp.Success {
		by := saidBy(resp.RPCHeader)
		asked.promised = by.promises
		t.note(id, asked)
		if !heartbeat(args) {
			t.accept(id, to, args, by.listens)
		}
	}
	return nil
}

// redialPause is the shortest time between two calls of redial that hang up to the same address.
const redialPause = time.Second

// redial returns err. If the peer at an address has refused a request, or is not the member that has this address, redial also closes the
// connections to the address: they may lead to a node that had the member's IP address for a while.
func (t *transport) redial(to raft.ServerAddress, err error) error {
	if err == nil || away(err) {
		return err
	}
	now := t.time.Monotonic()
	if last, ok := t.redials.Load(to); ok && now-last.(time.Duration) < redialPause {
		return err
	}
	t.redials.Store(to, now)
	t.port.HangUp(string(to))
	return err
}

type sendAppend func(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error

// sender returns a function that sends by an appender, or by Raft's own transport if the peer or the request
// does not fit the appender.
func (t *transport) sender(by *appender, other *raft.NetworkTransport) sendAppend {
	return func(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
		if err := by.ask(to, args, resp); err != errNotSpoken {
			return err
		}
		return afresh(func() error { return other.AppendEntries(id, to, args, resp) })
	}
}

// InstallSnapshot repeats no failed request, because data can be read only once. If the peer is away, it waits (back).
func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := t.NetworkTransport.InstallSnapshot(id, to, args, resp, data)
	if away(err) {
		t.back(id, to, args.Term)
	}
	if err == nil { // this answer does not name its sender
		err = t.believable(resp.Term, 0)
	}
	return err
}

var errNoHandover = errors.New("the member that was to lead did not answer in time")

// TimeoutNow asks a member to stand for election at once. Its timeout is short, because nothing is proposed meanwhile
// (transfer.go).
func (t *transport) TimeoutNow(id raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, _ *raft.TimeoutNowResponse) error {
	done := make(chan error, 1)
	go func() {
		done <- afresh(func() error { return t.NetworkTransport.TimeoutNow(id, to, args, &raft.TimeoutNowResponse{}) })
	}()
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return errNoHandover
	}
}

// afresh repeats request while a broken connection makes it fail, until all kept connections (transportPool) are used up.
func afresh(request func() error) (err error) {
	for range transportPool + 1 {
		if err = request(); !peerport.Broken(err) {
			return err
		}
	}
	return err
}

// header returns the header that Raft sends with each of its requests.
func (t *transport) header() raft.RPCHeader {
	self := raft.ServerID(t.self)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: t.EncodePeer(self, raft.ServerAddress(t.addr))}
}

// heartbeat reports whether a request is a heartbeat, by the same rule as Raft's transport.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}
