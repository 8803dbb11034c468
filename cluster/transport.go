package cluster

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"lockstep/cluster/internal/datadir"
)

// transport is hashicorp/raft's, but for a few things. It keeps account of who
// has followed this node when (verify.go). It bounds how much of the log Raft
// applies at once (replay.go). And it does not take a broken
// connection for an answer: Raft keeps a few connections to each peer, and if
// the peer was started again meanwhile they lead nowhere, and the first request
// over each is lost: a vote, and with it an election, or the first entry of a
// new leader. So such a request is made again until the connection is a new
// one. All of them may come twice. And no heartbeat is answered
// when it is closed.
type transport struct {
	*raft.NetworkTransport
	beats     *raft.NetworkTransport // sends heartbeats, and has an answer soon or not at all
	appends   *appender              // sends entries …
	beating   *appender              // … and heartbeats to peers that speak its codec
	patience  time.Duration          // for TimeoutNow
	silence   time.Duration          // of a leader, after which it may be none (prevote.go)
	strangers *strangers

	beatHandler atomic.Pointer[func(raft.RPC)]

	self      string        // id of this node
	addr      string        // of its peer port, as the others know it
	directory string        // see directory.go
	cluster   func() string // its name; "" if it is not known
	meet      func(id, directory []byte) error

	replicates atomic.Bool // entries have been sent

	// Set before the first request is taken.
	log     *datadir.Log                    // nil in tests: there is nothing to lose
	met     func(id, directory []byte) bool // it was met as a member, with this directory
	vouched func(id string) bool            // other members say that it is one
	refused *seldom

	time     TimeSource
	held     *heldVotes
	promises bool // to whoever leads
	listens  func() bool

	closing sync.RWMutex // held for reading while a heartbeat is answered
	deaf    bool

	mu    sync.Mutex
	steps uint64 // orders calls and requests
	acks  map[raft.ServerID]ack

	heard   map[raft.ServerID]uint64 // step of its last answer to a heartbeat
	matches map[raft.ServerID]matched

	audience map[raft.ServerID]*listener
	news     matched // the last committed entry that has messages

	raft atomic.Pointer[raft.Raft] // nil: it is being started

	progress progress
	requests chan raft.RPC // to Raft, from relay
	closed   chan struct{}
	stop     <-chan struct{} // closed before Raft is shut down
	close    sync.Once
}

var (
	_ raft.Transport   = (*transport)(nil)
	_ raft.WithPreVote = (*transport)(nil)
	_ raft.WithClose   = (*transport)(nil)
)

func newTransport(port *peerPort, cfg *Config, logs hclog.Logger, stop <-chan struct{}, directory string, cluster func() string, meet func(id, directory []byte) error) *transport {
	beatTimeout := 2 * cfg.HeartbeatTimeout
	t := &transport{strangers: cfg.strangers, self: cfg.ID, addr: cfg.peerAddr(), directory: directory, cluster: cluster, meet: meet, patience: cfg.ElectionTimeout, silence: cfg.HeartbeatTimeout / 2, acks: map[raft.ServerID]ack{}, heard: map[raft.ServerID]uint64{}, matches: map[raft.ServerID]matched{},
		time: cfg.Time, held: newHeldVotes(cfg.Time.Monotonic), promises: cfg.LeaseReads, listens: cfg.Listens, audience: map[raft.ServerID]*listener{},
		requests: make(chan raft.RPC), closed: make(chan struct{}), stop: stop,
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: port, MaxPool: transportPool, Timeout: transportTimeout, Logger: logs,
			// No pipelining: when a response ends it (the follower has restarted, or
			// the connection broke), Raft's goroutine that sends may wait for ever
			// for the one that reads and has gone. That follower then gets no more
			// entries from this leader, and shutting down never ends. There is one
			// batch in flight, so there is nothing to pipeline.
			MaxRPCsInFlight: 1,
		}),
		beats: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: outgoing{port}, MaxPool: 2, Timeout: beatTimeout, Logger: logs, MaxRPCsInFlight: 1,
		}),
		appends: newAppender(port, transportTimeout, cfg), beating: newAppender(port, beatTimeout, cfg)}
	return t
}

// outgoing is a peer port for connections that this node makes. Heartbeats have
// their own: a connection that was kept while the network was cut leads nowhere,
// and entries may take their time, so Raft would wait for a transportTimeout
// before it tried another one, and the peer that is back would have no leader.
type outgoing struct{ *peerPort }

// Accept has nothing to hand out: the connections of peers are all alike.
func (o outgoing) Accept() (net.Conn, error) {
	<-o.stop
	return nil, net.ErrClosed
}

// Close leaves the port to its owner.
func (outgoing) Close() error { return nil }

// SetHeartbeatHandler sets what answers heartbeats, on the connection's own
// goroutine. Raft does not wait for that when it shuts down, and the handler
// may write a term to the disk: once the disk is closed that is a panic.
func (t *transport) SetHeartbeatHandler(handle func(raft.RPC)) {
	t.beatHandler.Store(&handle)
	t.NetworkTransport.SetHeartbeatHandler(func(rpc raft.RPC) { t.heartbeat(rpc, handle) })
}

func (t *transport) heartbeat(rpc raft.RPC, handle func(raft.RPC)) {
	if t.promises {
		t.held.promise()
	}
	if t.beat(rpc, handle) {
		return
	}
	select {
	case t.requests <- rpc:
	case <-t.closed:
		rpc.Respond(nil, raft.ErrRaftShutdown)
	}
}

// beat answers a heartbeat, unless it is one for Raft's main goroutine: one that
// changes its term or its state. If that goroutine is about to write a later term,
// this one would be written after it, and Raft would go back: it would acknowledge
// entries to a leader against which it has just voted.
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
	r := t.raft.Load()
	req, ok := rpc.Command.(*raft.AppendEntriesRequest)
	if !ok || r == nil || r.State() != raft.Follower || req.Term > r.CurrentTerm() {
		return false
	}
	handle(rpc)
	return true
}

// Close returns when no heartbeat is being answered any more, and none will be.
func (t *transport) Close() error {
	t.closing.Lock()
	t.deaf = true
	t.closing.Unlock()
	t.close.Do(func() { close(t.closed) })
	return errors.Join(t.beats.Close(), t.NetworkTransport.Close())
}

// RequestVote tells another node that this one has voted for itself.
func (t *transport) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if !t.held.wait(t.closed) {
		return raft.ErrRaftShutdown
	}
	if err := afresh(func() error { return t.NetworkTransport.RequestVote(id, to, args, resp) }); err != nil {
		return err
	}
	return t.knownAs(id, resp.RPCHeader, resp.Term, 0)
}

func (t *transport) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := afresh(func() error { return t.NetworkTransport.RequestPreVote(id, to, args, resp) }); err != nil {
		return err
	}
	return t.knownAs(id, resp.RPCHeader, resp.Term, 0)
}

// AppendEntries sends heartbeats and entries. Raft leaves a peer that has been
// away for some seconds without entries for up to ten more when it is back, all
// the while hearing its answers to heartbeats. So entries that do not arrive wait
// for such an answer, and are sent then.
func (t *transport) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	asked, send := t.asking(args.Term), t.sender(t.appends, t.NetworkTransport)
	if heartbeat(args) {
		send = t.sender(t.beating, t.beats)
	} else if t.log != nil {
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
	err := send(id, to, args, resp)
	if !heartbeat(args) && away(err) && t.back(id, args.Term) {
		asked = t.asking(args.Term)
		err = send(id, to, args, resp)
	}
	if err == nil {
		err = t.knownAs(id, resp.RPCHeader, resp.Term, resp.LastLog)
	}
	if err == nil && heartbeat(args) {
		t.answered(id)
	}
	if err == nil && resp.Success {
		by := saidBy(resp.RPCHeader)
		asked.promised = by.promises
		t.note(id, asked)
		if !heartbeat(args) {
			t.accept(id, to, args, by.listens)
		}
	}
	return err
}

type sendAppend func(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error

// sender sends by an appender, or by Raft's own transport where that cannot be.
func (t *transport) sender(by *appender, other *raft.NetworkTransport) sendAppend {
	return func(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
		if err := by.ask(to, args, resp); err != errNotSpoken {
			return err
		}
		return afresh(func() error { return other.AppendEntries(id, to, args, resp) })
	}
}

// InstallSnapshot sends a snapshot. What can be read once cannot be sent again,
// but Raft begins anew.
func (t *transport) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	err := t.NetworkTransport.InstallSnapshot(id, to, args, resp, data)
	if away(err) {
		t.back(id, args.Term)
	}
	if err == nil { // Raft does not say here who answers
		err = t.believable(resp.Term, 0)
	}
	return err
}

var errNoHandover = errors.New("the member that was to lead did not answer in time")

// TimeoutNow asks a member to stand for election at once. Nothing is proposed
// until it returns (transfer.go), so it must not wait for a connection to time out.
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

// afresh makes a request again for each connection that may have been kept.
func afresh(request func() error) (err error) {
	for range transportPool + 1 {
		if err = request(); !brokenBefore(err) {
			return err
		}
	}
	return err
}

// brokenBefore reports whether the connection was broken: not that none could
// be made, that the peer was too slow, or that it refused.
func brokenBefore(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op != "dial" && !op.Timeout()
	}
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// header is what Raft sends with each of its requests.
func (t *transport) header() raft.RPCHeader {
	self := raft.ServerID(t.self)
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(self), Addr: t.EncodePeer(self, raft.ServerAddress(t.addr))}
}

// heartbeat reports whether a request is one, as Raft's transport tells them
// apart.
func heartbeat(args *raft.AppendEntriesRequest) bool {
	return args.PrevLogEntry == 0 && args.PrevLogTerm == 0 && len(args.Entries) == 0 && args.LeaderCommitIndex == 0
}

// away reports whether the peer could not be reached: not that it refused.
func away(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) || brokenBefore(err)
}

// answered notes that a peer has answered a heartbeat.
func (t *transport) answered(id raft.ServerID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
	t.heard[id] = t.steps
}

// backTick is how often it is looked whether a peer is back.
const backTick = 10 * time.Millisecond

// back waits until a peer that was away has answered a heartbeat; false if this
// node does not lead it any more in the term, or stops.
func (t *transport) back(id raft.ServerID, term uint64) bool {
	since := t.step()
	tick := time.NewTicker(backTick)
	defer tick.Stop()
	for {
		t.mu.Lock()
		heard := t.heard[id] > since
		t.mu.Unlock()
		if heard {
			return true
		}
		select {
		case <-t.stop:
			return false
		case <-tick.C:
		}
		if !t.leads(id, term) {
			return false
		}
	}
}

// leads reports whether this node leads in a term, and the peer is a member.
func (t *transport) leads(id raft.ServerID, term uint64) bool {
	r := t.raft.Load()
	if r == nil {
		return true
	}
	conf := r.GetConfiguration()
	return r.State() == raft.Leader && r.CurrentTerm() == term && conf.Error() == nil &&
		slices.ContainsFunc(conf.Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}
