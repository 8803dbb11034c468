package server

import (
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/store"
	"github.com/lockstep-io/lockstep/store/redistext"
)

// replicationRows are Redis's commands about replication. Here Raft replicates, so those without a counterpart return an error or do
// nothing.
func replicationRows() []row {
	const admin = store.Admin | store.NoScript
	plain := func(name string, arity int, flags store.Flags, since, usage, summary string, do handler) row {
		return row{Command: store.Command{Name: name, Arity: arity, Flags: flags, Group: "server", Since: since, Usage: usage, Summary: summary}, do: do}
	}
	const address = "<host port | NO ONE>"
	slaveof := plain("slaveof", 3, admin|store.Stale|store.NoAsyncLoading, "1.0.0", address, "The old name of REPLICAOF.", doReplicaOf)
	slaveof.Deprecated, slaveof.ReplacedBy = "5.0.0", "`REPLICAOF`"
	wait := store.Command{
		Name: "wait", Arity: 3, Flags: store.NoScript | store.Connection, Group: "generic", Since: "3.0.0",
		Summary: "Counts the other nodes that have this connection's writes on disk, and waits for more.",
		Usage:   "numreplicas timeout", Tips: []string{"request_policy:all_shards", "response_policy:agg_min"},
	}
	waitaof := wait
	waitaof.Name, waitaof.Arity, waitaof.Since = "waitaof", 4, "7.2.0"
	waitaof.Summary = "Says whether this node has this connection's writes on disk, and how many others have, and waits for more."
	waitaof.Usage = "numlocal numreplicas timeout"
	return []row{
		{Command: wait, do: doWait},
		{Command: waitaof, do: doWaitAOF},
		plain("replicaof", 3, admin|store.Stale|store.NoAsyncLoading, "5.0.0", address, "Makes a Redis a replica of another; here only NO ONE does anything: nothing.", doReplicaOf),
		slaveof,
		plain("failover", -1, admin|store.Stale, "6.2.0", "[TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]", "Hands leadership to another node.", doFailover),
		plain("sync", 1, admin|store.NoAsyncLoading|store.NoMulti, "1.0.0", "", "Asks a Redis for its data as a replica.", doNoSync),
		plain("psync", -3, admin|store.NoAsyncLoading|store.NoMulti, "2.8.0", "replicationid offset", "Asks a Redis for its data as a replica.", doNoSync),
		plain("replconf", -1, admin|store.Loading|store.Stale|store.AllowBusy, "3.0.0", "", "How a Redis replica introduces itself.", doReplConf),
		plain("bgrewriteaof", 1, admin|store.NoAsyncLoading, "1.0.0", "", "Shortens the log by a snapshot, in the background.", doBgRewriteAOF),
	}
}

// waitTimeout parses the timeout of WAIT and WAITAOF.
func waitTimeout(arg []byte) (time.Duration, store.Error) {
	ms, ok := redistext.ParseInt(arg)
	switch {
	case !ok:
		return 0, errTimeout
	case ms < 0:
		return 0, errTimeoutSign
	}
	return milliseconds(ms), ""
}

// replicaWait is a WAIT or WAITAOF that waits.
type replicaWait struct {
	cancel context.CancelFunc
	ended  chan store.Error // gets the answer that CLIENT UNBLOCK asks for: an error, or "" for the answer after a timeout
}

// unblockWait ends the session's WAIT or WAITAOF. It returns false if there is none, or if CLIENT UNBLOCK has ended it
// already.
func (s *session) unblockWait(refusal store.Error) bool {
	w := s.replicas.Load()
	if w == nil || !s.replicas.CompareAndSwap(w, nil) {
		return false
	}
	w.ended <- refusal
	w.cancel()
	return true
}

// waitsForReplicas lets CLIENT UNBLOCK end WAIT or WAITAOF by cancel. After the wait, the caller must call over, which returns CLIENT
// UNBLOCK's error.
func (s *session) waitsForReplicas(cancel context.CancelFunc) (over func() store.Error) {
	w := &replicaWait{cancel, make(chan store.Error, 1)}
	s.srv.stats.blocked.Add(1)
	s.replicas.Store(w)
	return func() (refusal store.Error) {
		if !s.replicas.CompareAndSwap(w, nil) {
			refusal = <-w.ended
		}
		s.srv.stats.blocked.Add(-1)
		return refusal
	}
}

// replicated calls Backend.Replicated, and lets it wait no longer than timeout (0: no limit). refusal is the error that CLIENT UNBLOCK
// asks for.
func (s *session) replicated(others int64, here bool, timeout time.Duration) (n int, self bool, refusal store.Error) {
	defer s.idle()()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.executing != nil {
		timeout = 1
	} else {
		s.out.flush() // earlier replies need not wait
		over := s.waitsForReplicas(cancel)
		defer func() { refusal = over() }()
	}
	if timeout > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, timeout)
		defer end()
	}
	if !s.onLoop {
		defer s.conn.watch(cancel)()
	}
	done := make(chan struct{})
	defer close(done)
	go s.endsWait(cancel, done)
	n, self = s.srv.backend.Replicated(ctx, int(min(max(others, 0), 1<<30)), here)
	return n, self, ""
}

// endsWait calls cancel when the session must not wait any more. It polls, because nothing signals that a client has been cut off.
func (s *session) endsWait(cancel context.CancelFunc, done <-chan struct{}) {
	defer cancel()
	tick := time.NewTicker(cronPeriod)
	defer tick.Stop()
	for !s.out.isOver() && !s.left.Load() && !s.isClosing() {
		select {
		case <-done:
			return
		case <-s.srv.stop:
			return
		case <-tick.C:
		}
	}
}

// doWait need not wait for less than a majority: a majority of the nodes has each write before the server replies to the write.
func doWait(s *session, args [][]byte) store.Reply {
	others, ok := redistext.ParseInt(args[1])
	if !ok {
		return store.Err(store.ErrNotInteger)
	}
	timeout, refusal := waitTimeout(args[2])
	if refusal != "" {
		return store.Err(refusal)
	}
	n, _, refusal := s.replicated(others, false, timeout)
	if refusal != "" {
		return store.Err(refusal)
	}
	return store.Int(int64(n))
}

func doWaitAOF(s *session, args [][]byte) store.Reply {
	here, ok := redistext.ParseInt(args[1])
	switch {
	case !ok:
		return store.Err(store.ErrNotInteger)
	case here < 0 || here > 1:
		return store.Err(store.ErrIntRange(0, 1))
	}
	others, ok := redistext.ParseInt(args[2])
	switch {
	case !ok:
		return store.Err(store.ErrNotInteger)
	case others < 0:
		return store.Err(errNotPositive)
	}
	timeout, refusal := waitTimeout(args[3])
	if refusal != "" {
		return store.Err(refusal)
	}
	if !s.srv.cfg.Durable {
		if here > 0 {
			return store.Err(errNoLocalDisk)
		}
		return store.List(store.Zero, store.Zero)
	}
	n, self, refusal := s.replicated(others, true, timeout)
	if refusal != "" {
		return store.Err(refusal)
	}
	return store.List(store.Flag(self), store.Int(int64(n)))
}

// doReplicaOf accepts only NO ONE, and only on the leader; it changes nothing.
func doReplicaOf(s *session, args [][]byte) store.Reply {
	if strings.EqualFold(string(args[1]), "no") && strings.EqualFold(string(args[2]), "one") {
		if s.srv.leads() {
			return store.OK
		}
		return store.Err(errNoPromotion)
	}
	if port, ok := redistext.ParseInt(args[2]); !ok || port < 0 || port > 65535 {
		return store.Err(errMasterPort)
	}
	return store.Err(errNoReplicaOf)
}

func doNoSync(*session, [][]byte) store.Reply { return store.Err(errNoSync) }

// doReplConf accepts the options of a Redis replica, so that the replica goes on to SYNC and gets its error.
func doReplConf(_ *session, args [][]byte) store.Reply {
	if len(args)%2 == 0 {
		return store.Err(store.ErrSyntax)
	}
	for i := 1; i < len(args); i += 2 {
		switch option := strings.ToLower(string(args[i])); option {
		case "listening-port", "ip-address", "capa", "rdb-only", "rdb-filter-only":
		case "ack", "getack":
			return store.Reply{Kind: store.None}
		default:
			return store.Err(errf("ERR Unrecognized REPLCONF option: %s", cString(args[i], len(args[i]))))
		}
	}
	return store.OK
}

func doBgRewriteAOF(s *session, _ [][]byte) store.Reply {
	if s.srv.saving.Load() {
		return store.Err(errRewriting)
	}
	go s.srv.save() // save logs its failure
	return store.Status("Background append only file rewriting started")
}

// failover holds the arguments of FAILOVER.
type failover struct {
	named bool // host and port name the new leader
	host  string
	port  string
	force bool
	abort bool
	timed bool
}

func parseFailover(args [][]byte) (f failover, refusal store.Error) {
	for i := 1; i < len(args); i++ {
		switch option := strings.ToLower(string(args[i])); {
		case option == "abort" && len(args) == 2:
			f.abort = true
		case option == "timeout" && i+1 < len(args) && !f.timed:
			i++
			switch ms, ok := redistext.ParseInt(args[i]); {
			case !ok:
				return f, store.ErrNotInteger
			case ms <= 0:
				return f, errFailoverTimeout
			}
			f.timed = true
		case option == "to" && i+2 < len(args) && !f.named:
			port, ok := redistext.ParseInt(args[i+2])
			if !ok {
				return f, store.ErrNotInteger
			}
			f.named, f.host, f.port = true, string(args[i+1]), strconv.FormatInt(port, 10)
			i += 2
		case option == "force" && !f.force:
			f.force = true
		default:
			return f, store.ErrSyntax
		}
	}
	return f, ""
}

// doFailover hands leadership over as LOCKSTEP TRANSFER does. A client may name the new leader by its client address
// (option TO).
func doFailover(s *session, args [][]byte) store.Reply {
	f, refusal := parseFailover(args)
	switch {
	case refusal != "":
		return store.Err(refusal)
	case f.abort:
		return store.Err(errNoFailover)
	}
	members, err := s.srv.backend.Members()
	if err != nil {
		return store.Err(errf("ERR %v", err))
	}
	id := ""
	for _, m := range members {
		if f.named && m.Client == net.JoinHostPort(f.host, f.port) {
			id = m.ID
		}
	}
	switch {
	case len(members) < 2:
		return store.Err(errNoReplicas)
	case f.force && (!f.timed || !f.named):
		return store.Err(errFailoverForce)
	case f.named && id == "":
		return store.Err(errFailoverTarget)
	}
	if err := s.srv.backend.Transfer(id); err != nil {
		return store.Err(errf("ERR %s", strings.TrimPrefix(err.Error(), "ERR ")))
	}
	return store.OK
}
