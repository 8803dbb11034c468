package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/cluster/brake"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/audit"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/bridge"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/systemd"
	"github.com/lockstep-io/lockstep/cmd/lockstep/internal/traces"
	"github.com/lockstep-io/lockstep/luavm"
	"github.com/lockstep-io/lockstep/server"
	"github.com/lockstep-io/lockstep/store"
)

// drainTimeout bounds how long a node that stops waits for the running commands and requests of its clients.
const drainTimeout = 5 * time.Second

// pagesTimeout bounds how long a node that stops waits for its HTTP clients, after everything else has ended.
const pagesTimeout = 250 * time.Millisecond

// serve runs a node until SIGTERM, SIGINT or SHUTDOWN, or until one of its client ports fails.
func serve(args []string, stdout io.Writer, lines *lineQueue) error {
	var o options
	fs := flag.NewFlagSet("serve", flag.ContinueOnError)
	o.define(fs)
	file, err := parseWithFile(fs, args)
	if err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(stdout, helpText())
		}
		return err
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", fs.Arg(0))}
	}
	if err := emptyFlags(fs, "join", "peers", "aclfile", "peer-secret-file"); err != nil {
		return usageError{err}
	}
	cfg, err := o.clusterConfig()
	if err != nil {
		return usageError{err}
	}
	log, err := o.logger(lines)
	if err != nil {
		return usageError{err}
	}
	if file != nil && file.secret != "" {
		log.Warn("others of this machine may read the configuration file, which has a secret: chmod 600", "file", file.path, "key", file.secret)
	}
	o.file = file
	if o.configCheck {
		return o.check(cfg, log, stdout)
	}
	if err := lines.sayBy(o.logger); err != nil {
		return err
	}
	cfg.Fatal = lines.die
	secretsIn(args, func(int, int) {
		log.Warn("a password was given on the command line, where others of this machine could read it until now: put it into a file and name that, as with --requirepass-file")
	})
	if !o.ephemeral && !o.without.has(slowMonitor) {
		if err := relaxMonitor(); err != nil {
			log.Debug("the runtime's monitor is not relaxed", "error", err)
		}
	}
	if !o.ephemeral { // otherwise nothing is written to a disk
		if err := keepMainThread(); err != nil {
			log.Debug("the main thread is not kept from the disk: if the disk hangs, SIGTERM may not end this node", "error", err)
		}
	}
	stop, cancel, hangups := takeSignals()
	defer cancel()
	return runNode(stop, cancel, hangups, o, cfg, log, lines)
}

// parts are the parts of a node. assemble makes them before the node accepts clients.
type parts struct {
	listeners   listeners
	node        *cluster.Node
	server      *server.Server
	sentinel    *server.Server // nil without --sentinel-listen
	tlsSentinel *server.Server // nil without --tls-sentinel-listen
	audit       *audit.Writer  // nil without --audit-dir
	traces      *traces.Sender // nil without --otlp-endpoint
	bridge      *bridge.Bridge // nil without --bridge
	reload      []reloader     // what SIGHUP makes the node read again, in this order
	lines       *lineQueue     // what takes the lines of the log; nil in a test
	clock       cluster.TimeSource
}

// newEngine makes the engine that runs scripts. srv gets the server later.
func newEngine(o options, plan memoryPlan, clock cluster.TimeSource, log *slog.Logger, srv *atomic.Pointer[server.Server]) *luavm.Engine {
	lines, faults := scriptLog(log, clock.Monotonic)
	return luavm.New(luavm.Options{Now: clock.Monotonic, TimeLimit: o.scriptLimit, MemoryLimit: plan.script, Bring: brake.Bring, Log: lines, Fault: faults,
		Absent: server.WhyAbsent, Interpret: o.without.has(fastScripts),
		Allow: func(cmd *store.Command) bool {
			s := srv.Load()
			return s != nil && s.AllowsInScript(cmd)
		},
		Local: func(c *store.Ctx) store.Reply {
			if s := srv.Load(); s != nil {
				return s.RunInScript(c)
			}
			return store.Err(cluster.ErrClusterDown)
		},
		Trace: func(c *store.Ctx) {
			if s := srv.Load(); s != nil {
				s.Watch(c)
			}
		}})
}

// configure sets the fields of a server's configuration that depend on the flags, the memory plan and the ports.
func (o *options) configure(sc *server.Config, plan memoryPlan, ls listeners) {
	sc.MaxMemoryClients, sc.Memory = plan.client, plan.all
	sc.MaxClients = cmp.Or(o.maxClients, plan.count, sc.MaxClients)
	if plan.files > 0 {
		sc.ClientCeiling, sc.MaxHandshakes = o.clientsWithin(plan.files, sc.MaxHandshakes)
		sc.MaxClients = min(sc.MaxClients, sc.ClientCeiling)
	}
	sc.UnixSocket, sc.UnixSocketPerm = o.unix.path, strings.TrimLeft(o.unix.perm, "0")
	sc.Port, sc.TLSPort, sc.Bind = portOf(ls.plain), portOf(ls.tlsPlain), hostOf(ls.plain, ls.tlsPlain)
	if o.without.has(eventLoops) {
		sc.Loops = -1
	}
	sc.NoUring = o.without.has(ioUring)
	sc.ACLFile = o.aclFile
	sc.RequirePass, sc.ProtectedMode = o.password, o.protected == "yes"
	sc.EnableDebugCommand = cmp.Or(o.debugCommand, sc.EnableDebugCommand)
}

// assemble makes the parts of a node and starts it.
func assemble(o options, cfg cluster.Config, plan memoryPlan, clock cluster.TimeSource, log *slog.Logger, shutdown func()) (*parts, error) {
	var srv atomic.Pointer[server.Server]
	engine := newEngine(o, plan, clock, log, &srv)
	table := store.NewTable(store.Commands(), engine.Commands(), server.Commands())
	engine.Bind(table)
	hub := server.NewHub()

	certificates, err := server.NewCertificates(o.tls.files, log)
	if err != nil {
		return nil, usageError{err}
	}
	users, err := o.aclUsers(table)
	if err != nil {
		return nil, usageError{err}
	}
	// The client ports are opened first: a port that is not free is the likeliest fault, and nothing needs to be undone yet.
	ls, err := listen(o, &cfg)
	if err != nil {
		return nil, err
	}
	sc := server.Default()
	cfg.Table, cfg.Scripts, cfg.Sink, cfg.Receivers, cfg.Subscribers, cfg.Listens = table, engine, hub, hub.Receivers, hub.Subscribers, hub.Listens
	cfg.UsersVersion, cfg.Clients = hub.UsersVersion, hub.Clients
	cfg.Time, cfg.Logger = clock, log
	cfg.BlockedMemory = plan.client / 2
	cfg.RunID, cfg.ACL = sc.RunID, hub.ACL(o.password, users)
	auditor, err := o.openAudit(hub, log)
	if err != nil {
		return nil, errors.Join(err, ls.close())
	}
	sender, err := o.openTraces(&cfg, log)
	if err != nil {
		return nil, errors.Join(err, ls.close(), auditor.Close())
	}
	node, err := cluster.Open(cfg)
	if err != nil {
		return nil, errors.Join(err, ls.close(), auditor.Close())
	}
	o.configure(&sc, plan, ls)
	sc.NodeID, sc.Clock, sc.Log, sc.Hub = cfg.ID, clock.Wall, log, hub
	sc.DataDir, sc.Durable, sc.Limits = cfg.Data, !cfg.Ephemeral, cfg.Limits
	sc.TLS, sc.ACLUsers, sc.LibraryMemory = certificates, users, engine.Kept
	sc.OnShutdown, sc.Ballast, sc.FailoverWait = shutdown, len(ballast), cfg.FailoverWait
	o.rewriting(&sc)
	if err := sc.Validate(); err != nil {
		return nil, errors.Join(usageError{err}, ls.close(), node.Close(), auditor.Close())
	}
	backend, over, err := o.openBridge(node, table, hub, clock, log)
	if err != nil {
		return nil, errors.Join(err, ls.close(), node.Close(), auditor.Close())
	}
	srv.Store(server.New(sc, backend, table))
	if err := srv.Load().SetParameters(o.parameters()); err != nil {
		return nil, errors.Join(usageError{o.inFile(err)}, ls.close(), over.Close(), node.Close(), auditor.Close())
	}
	p := &parts{listeners: ls, node: node, server: srv.Load(), clock: clock, audit: auditor, traces: sender, bridge: over}
	if o.file != nil {
		r := o.reread(srv.Load().SetParameters, log)
		p.reload = append(p.reload, reloader{"the configuration file", r.read})
	}
	if cfg.PeerTLS.On() {
		p.reload = append(p.reload, reloader{"what peers prove themselves with", node.ReloadPeerTLS})
	}
	if ls.sentinel != nil {
		p.sentinel = newSentinel(o, sc, node, ls.sentinel, false)
	}
	if ls.tlsSentinel != nil {
		p.tlsSentinel = newSentinel(o, sc, node, ls.tlsSentinel, true)
	}
	if o.tls.files.CertFile != "" {
		p.reload = append(p.reload, reloader{"the TLS files", certificates.Reload})
	}
	return p, nil
}

// openBridge puts a bridge to the old Redis in front of the node, if there is --bridge.
func (o *options) openBridge(node *cluster.Node, table *store.Table, hub *server.Hub, clock cluster.TimeSource, log *slog.Logger) (server.Backend, *bridge.Bridge, error) {
	if o.bridge == "" {
		return node, nil, nil
	}
	b, err := bridge.Open(bridge.Options{URL: o.bridge, Table: table, Monotonic: clock.Monotonic, Deliver: hub.Publish, Log: log}, node)
	if err != nil {
		return nil, nil, fmt.Errorf("--bridge: %w", err)
	}
	return b, b, nil
}

// openTraces lets the node tell a collector of slow requests; it returns nil without --otlp-endpoint.
func (o *options) openTraces(cfg *cluster.Config, log *slog.Logger) (*traces.Sender, error) {
	if o.otlpEndpoint == "" {
		return nil, nil
	}
	if o.traceFrom < 0 {
		return nil, usageError{fmt.Errorf("--trace-slower-than %v: want a time such as 100ms, or 0 for every request", o.traceFrom)}
	}
	s, err := traces.New(o.otlpEndpoint, o.id, version, log)
	if err != nil {
		return nil, usageError{fmt.Errorf("--otlp-endpoint: %w", err)}
	}
	cfg.Slow, cfg.SlowFrom = s.Send, o.traceFrom
	return s, nil
}

// runNode runs a node until the context stop is cancelled or a listener for clients fails. SHUTDOWN calls shutdown, which must cancel
// stop.
func runNode(stop context.Context, shutdown func(), hangups <-chan os.Signal, o options, cfg cluster.Config, log *slog.Logger, lines *lineQueue) error {
	plan := limitMemory(memlimit.FromCgroup, log)
	plan.ofMachine(memlimit.FromSystem)
	plan.all = memoryOf(memlimit.FromCgroup, memlimit.FromSystem)
	var err error
	if plan.files, err = openFiles(); err != nil {
		return err
	}
	if most, _ := o.clientsWithin(plan.files, server.Default().MaxHandshakes); most < cmp.Or(o.maxClients, plan.count, server.Default().MaxClients) {
		log.Warn("the limit of open files leaves room for fewer clients than maxclients: raise it (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile of Docker), or set --maxclients", "files", plan.files, "maxclients", most)
	}
	if !o.ephemeral {
		limitProcessors()
	}
	if cfg.Limits, err = o.limits(plan); err != nil {
		return usageError{err}
	}
	manager := systemd.New(log)
	started := manager.Starting()
	p, err := assemble(o, cfg, plan, cluster.NewSystemTime(), log, shutdown)
	started()
	if err != nil {
		return err
	}
	p.lines = lines
	sayStart(log, &o, cfg, p.node)
	pages, err := serveHTTP(o, p, log)
	if err != nil {
		return errors.Join(err, p.listeners.close(), p.bridge.Close(), p.node.Close(), p.audit.Close())
	}
	failed := p.serve()
	go reloadOn(stop, hangups, func() { manager.Reload(func() { reload(p.reload, log) }) })
	go announce(stop, p, o, log)
	go manager.Run(stop, func() string { return standing(p.node) })

	select {
	case <-stop.Done():
		log.Info("Stopping")
	case err = <-failed:
	}
	manager.Stopping()
	// The node hands leadership over first, while it can still forward its clients' commands to the new leader.
	p.node.HandOver()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	err = errors.Join(err, p.server.Shutdown(ctx))
	for _, sentinel := range []*server.Server{p.sentinel, p.tlsSentinel} {
		if sentinel != nil {
			err = errors.Join(err, sentinel.Shutdown(ctx))
		}
	}
	err = errors.Join(err, p.bridge.Close(), p.node.Close(), p.audit.Close())
	p.traces.Close()
	err = errors.Join(err, stopPages(pages))
	if err == nil {
		log.Info("Stopped")
	}
	return err
}

// sayStart logs what has started, with which data and addresses, and for which members.
func sayStart(log *slog.Logger, o *options, cfg cluster.Config, node *cluster.Node) {
	data := cfg.Data
	if cfg.Ephemeral {
		data = "none (--ephemeral)"
	}
	what := []any{"version", version, "go", runtime.Version(), "id", o.id, "data", data, "peer-listen", o.peerListen, "http-listen", o.httpListen}
	if members, err := node.Members(); err == nil {
		var list []string
		for _, m := range members {
			list = append(list, m.ID+"="+m.PeerAddr)
		}
		what = append(what, "members", strings.Join(list, ","))
	}
	if o.file != nil {
		what = append(what, "config", o.file.path)
	}
	log.Info("Starting", what...)
}

// announce waits until the node can serve clients, and then logs that it is ready and at which addresses.
func announce(ctx context.Context, p *parts, o options, log *slog.Logger) {
	if p.node.WaitReady(ctx) == nil {
		p.server.WarnOfMaxMemory(p.server.MaxMemory()) // by now the node knows the cluster's maxmemory
		where := []any{"id", o.id}
		for _, port := range o.clientPorts() {
			if *port.addr != "" {
				where = append(where, port.flag, *port.addr)
			}
		}
		if o.unix.path != "" {
			where = append(where, "unixsocket", o.unix.path)
		}
		log.Info("Ready to accept connections", where...)
		if p.node.Learner() && p.node.Membership() == cluster.Voter {
			log.Warn("--voter=no has no effect: this member has a vote. To take the vote away, remove the member (lockstep remove), and start it with an empty directory and --join", "id", o.id)
		}
	}
}

// die writes the last line of the log and ends the process. It is the node's Config.Fatal, for errors that break the node's promises.
func (q *lineQueue) die(err error) {
	q.last(fmt.Sprintf("lockstep: %v\n", err))
	q.flush()
	os.Exit(exitRuntime)
}

// stopPages stops the HTTP server, if there is one. It cuts connections after pagesTimeout without an error: a stranger may keep one
// open.
func stopPages(pages *http.Server) error {
	if pages == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), pagesTimeout)
	defer cancel()
	if err := pages.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return pages.Close()
}

// standing says in a few words what a node does, for its service manager.
func standing(node *cluster.Node) string {
	s := node.Status()
	switch why := unready(node); {
	case why != "":
		return "not ready: " + why
	case s.Role == cluster.Leader:
		return "leads"
	}
	return "follows " + s.LeaderID
}

// unready returns why a node is not ready, for the page /readyz; "" if it is ready.
func unready(node *cluster.Node) string {
	switch m := node.Membership(); {
	case node.Stopping():
		return "stopping"
	case m == cluster.Removed:
		return "removed from the cluster"
	case m == cluster.Joining:
		return "not a member yet"
	case node.Trouble() != "":
		return node.Trouble()
	case !node.Reaches() && node.Misplaced() != "":
		return "no leader: the members look for this node at " + node.Misplaced() + ", which is not its peer address"
	case !node.Reaches():
		return "no leader"
	case m == cluster.NonVoter && !node.Learner():
		return "no vote yet"
	case !node.Ready():
		return "its log is not applied yet"
	}
	return ""
}
