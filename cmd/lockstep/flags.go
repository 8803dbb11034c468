package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/store"
)

// options are the flags of `lockstep serve`.
type options struct {
	id, listen, advertise     string
	peerListen, peerAdvertise string
	sentinelListen            string
	sentinelAdvertise         string
	sentinelAuth, masterName  string
	clusterListen             string
	clusterAdvertise          string
	httpListen, peers, join   string
	auditDir, auditSize       string
	otlpEndpoint              string
	bridge                    string
	config                    string
	configCheck               bool
	level                     *slog.LevelVar
	file                      *configFile // what --config names; nil without it
	traceFrom                 time.Duration
	data, password, protected string
	aclFile                   string
	logStore                  string
	logLevel, logFormat       string
	ephemeral, leaseReads     bool
	neverLead                 bool
	leadPriority              int
	voter                     string
	sameOwnerNX               bool
	debugCommand              string
	failoverWait, scriptLimit time.Duration
	maxMemory, maxEntry       string
	maxClients                int
	quotaDataDir              string
	peer                      peerOptions
	tls                       tlsOptions
	unix                      unixOptions
	http                      httpOptions
	without                   withoutPaths
}

// define declares the flags with their defaults. The help text lists them.
func (o *options) define(fs *flag.FlagSet) {
	d := cluster.Default()
	o.level = new(slog.LevelVar)
	fs.StringVar(&o.config, "config", "", "`file` in TOML with flags of this node, which the environment and the command line override, and parameters of CONFIG SET in [parameters] (docs/configuration.md)")
	fs.BoolVar(&o.configCheck, "config-check", false, "read what a start would read, say what is wrong with it, and end")
	fs.StringVar(&o.id, "id", d.ID, "`name` of this node, unique in the cluster")
	fs.StringVar(&o.listen, "listen", "127.0.0.1:6379", "`host:port` for Redis clients; \"\" turns it off, if there is --tls-listen")
	fs.StringVar(&o.advertise, "advertise", "", "`host:port` under which clients reach this node (default: --listen)")
	fs.StringVar(&o.unix.path, "unixsocket", "", "`path` of a Unix socket for Redis clients of this machine; off by default")
	fs.StringVar(&o.unix.perm, "unixsocketperm", "0", "`permissions` of that socket in octal, such as 770; 0: the umask decides")
	fs.StringVar(&o.peerListen, "peer-listen", d.PeerListen, "`host:port` for the other nodes")
	fs.StringVar(&o.peerAdvertise, "peer-advertise", "", "`host:port` under which the other nodes reach this one (default: its entry in --peers, or --peer-listen)")
	o.peer.define(fs)
	fs.StringVar(&o.sentinelListen, "sentinel-listen", "", "`host:port` for clients that find the leader by Redis Sentinel; off by default")
	fs.StringVar(&o.sentinelAdvertise, "sentinel-advertise", "", "`host:port` under which clients reach --sentinel-listen (default: the same)")
	fs.StringVar(&o.sentinelAuth, "sentinel-auth", "yes", "`yes|no`: whether Sentinel clients must give the password, too")
	fs.StringVar(&o.masterName, "sentinel-master-name", "mymaster", "`name` by which Sentinel clients ask for the leader")
	fs.StringVar(&o.clusterListen, "cluster-listen", "", "`host:port` for clients of Redis Cluster; off by default")
	fs.StringVar(&o.clusterAdvertise, "cluster-advertise", "", "`host:port` under which clients reach --cluster-listen (default: the same)")
	fs.StringVar(&o.httpListen, "http-listen", "127.0.0.1:8379", "`host:port` for /metrics, /healthz, /readyz and /debug/pprof; \"\" turns it off")
	fs.BoolVar(&o.http.tls, "http-tls", false, "speak TLS there, with the certificate of --tls-cert-file")
	fs.BoolVar(&o.http.guardMetrics, "http-metrics-auth", false, "show /metrics only to ACL users who may run INFO")
	fs.StringVar(&o.peers, "peers", "", "the first members as `id=host:port,...`, their peer addresses, the same on every node")
	fs.StringVar(&o.join, "join", "", "`host:port,...` of --peer-listen of one or more members of a running cluster: a new node joins it; one that has data does not look at this")
	fs.StringVar(&o.voter, "voter", "yes", "`yes|no`: no has a node that joins stay without a vote: it keeps a copy and serves clients, but no majority counts it")
	fs.BoolVar(&o.neverLead, "never-lead", false, "lead only until another voter can: for a voter in a far place, or on a slow machine")
	fs.IntVar(&o.leadPriority, "lead-priority", 0, fmt.Sprintf("`number` up to %d: a leader hands over to a voter that has a higher one and has kept up for 10 s", cluster.MostPriority))
	fs.StringVar(&o.data, "data", d.Data, "`directory` for the log and the snapshots")
	fs.StringVar(&o.logStore, "log-store", "", "`wal|bolt`: how a new data directory keeps its log: segment files with one disk sync per write, or a B+tree with two (default wal)")
	fs.StringVar(&o.auditDir, "audit-dir", "", "`directory` for files of the events of locks, as JSON lines, which lockstep audit checks; one for each node")
	fs.StringVar(&o.auditSize, "audit-size", "1gb", "`bytes` that these files may have together: the oldest are deleted")
	fs.StringVar(&o.otlpEndpoint, "otlp-endpoint", "", "`url` of an OpenTelemetry collector (http://host:4318) that gets the stages of slow requests as spans; the variables OTEL_EXPORTER_OTLP_* give it headers and certificates")
	fs.DurationVar(&o.traceFrom, "trace-slower-than", 100*time.Millisecond, "how long a request takes that becomes a trace")
	secretVar(fs, &o.bridge, "bridge", "`url` of a Redis from which clients move to this cluster: each command runs there first (docs/migrate.md)")
	fs.BoolVar(&o.ephemeral, "ephemeral", false, "keep nothing on disk: one node only, for tests")
	fs.StringVar(&o.protected, "protected-mode", "yes", "`yes|no`: refuse to listen beyond loopback for clients without a password, and for peers without --peer-secret-file or its kin")
	secretVar(fs, &o.password, "requirepass", "`password` that clients must give")
	fs.StringVar(&o.aclFile, "aclfile", "", "`file` of users as in Redis: it gives a new cluster its users; ACL LOAD and ACL SAVE read and write it (docs/operations.md)")
	fs.DurationVar(&o.failoverWait, "failover-wait", d.FailoverWait, "how long a command waits for a leader")
	fs.BoolVar(&o.leaseReads, "lease-reads", false, "answer reads without asking the followers each time, if they run with it, too: faster, and right as long as no machine's clock stands still (docs/guarantees.md)")
	fs.StringVar(&o.maxMemory, "maxmemory", "", "`bytes` (100mb, 2gb) of data from which on nothing may be added; 0: no limit; CONFIG SET maxmemory wins over it (default: a share of the container's memory, if that has a limit)")
	fs.IntVar(&o.maxClients, "maxclients", 0, "`number` of clients from which on more are refused; 0: 10000, or in a container one for each 284 KB of its memory, if that is less")
	fs.StringVar(&o.quotaDataDir, "quota-data-dir", "", "`bytes` (2gb) of the data directory from which on nothing may be added, on the leader; 0: no limit, else at least 256mb")
	fs.StringVar(&o.maxEntry, "max-entry-size", "8mb", "`bytes` that one command, script or transaction may write: nobody else is served meanwhile; CONFIG SET max-entry-size wins over it")
	fs.BoolVar(&o.sameOwnerNX, "same-owner-nx", false, "answer OK, and renew, to SET … NX of the value that is there: for owners whose values are their own, on all nodes (docs/guarantees.md)")
	fs.DurationVar(&o.scriptLimit, "script-time-limit", 5*time.Second, "how long a script, a command or a transaction may run before it is stopped without a trace; half as long each time for a user whose work is stopped again, and less for all users after much work of more than 0.5 s")
	fs.StringVar(&o.debugCommand, "enable-debug-command", "no", "`no|local|yes`: who may use DEBUG")
	fs.Var(&o.without, "without", "`name,...` of fast paths that this node does not take, to measure them or to look for a fault: "+strings.Join(fastPaths, ", "))
	fs.StringVar(&o.logLevel, "log-level", "info", "`debug|info|warn|error`")
	fs.StringVar(&o.logFormat, "log-format", "text", "`text|json`")
	o.tls.define(fs)
}

// worded is the value of a flag, with errors that say which values the flag accepts; the errors of package flag only say
// "parse error".
type worded struct {
	flag.Value
	want string
}

func (w worded) Set(s string) error {
	if w.Value.Set(s) != nil {
		return errors.New("want " + w.want)
	}
	return nil
}

func (w worded) IsBoolFlag() bool {
	b, is := w.Value.(interface{ IsBoolFlag() bool })
	return is && b.IsBoolFlag()
}

// word puts the values of duration, bool and integer flags into worded. Other flags accept every value, or say what they accept.
func word(fs *flag.FlagSet) {
	fs.VisitAll(func(f *flag.Flag) {
		got, is := f.Value.(flag.Getter)
		if !is {
			return
		}
		switch got.Get().(type) {
		case time.Duration:
			f.Value = worded{f.Value, "a duration with its unit, such as 2.5s"}
		case bool:
			f.Value = worded{f.Value, "true or false"}
		case int, int64, uint, uint64:
			f.Value = worded{f.Value, "a whole number"}
		}
	})
}

// parse parses a command line; flags override the environment.
func parse(fs *flag.FlagSet, args []string) error {
	if err := parseEnvironment(fs); err != nil {
		return err
	}
	return parseFlags(fs, args)
}

func parseFlags(fs *flag.FlagSet, args []string) error {
	fs.SetOutput(io.Discard)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError{flagFault(fs, err)}
	}
	return nil
}

// minDataQuota is the least --quota-data-dir, in bytes. It is so large because the log alone may take half of it.
const minDataQuota = 256 << 20

// clusterConfig turns the flags into the node's configuration. Its error has all faults that it finds in the flags.
func (o *options) clusterConfig() (cluster.Config, error) {
	c := cluster.Default()
	c.ID, c.Data, c.LogStore, c.Ephemeral = o.id, o.data, o.logStore, o.ephemeral
	c.PageCache = o.without.has(directIO)
	c.PeerListen, c.PeerAdvertise = o.peerListen, o.peerAdvertise
	c.FailoverWait, c.LeaseReads, c.SameOwnerNX = o.failoverWait, o.leaseReads, o.sameOwnerNX
	c.Version, c.Wish = version, cluster.Wish{Never: o.neverLead, Learner: o.voter == "no", Priority: o.leadPriority}
	o.advertiseTo(&c)
	var faults []error
	if n, ok := store.ParseMemory(cmp.Or(o.quotaDataDir, "0")); !ok || n != 0 && n < minDataQuota {
		faults = append(faults, fmt.Errorf("--quota-data-dir %q: want 0 or an amount from 256mb on, such as 2gb", o.quotaDataDir))
	} else {
		c.DataQuota = n
	}
	for _, p := range strings.Split(o.peers, ",") {
		if o.peers == "" {
			break
		}
		id, addr, ok := strings.Cut(strings.TrimSpace(p), "=")
		if !ok {
			faults = append(faults, fmt.Errorf("--peers: %q is not id=host:port", p))
			continue
		}
		c.Peers = append(c.Peers, cluster.Peer{ID: id, Addr: addr})
	}
	for _, addr := range strings.Split(o.join, ",") {
		if o.join != "" {
			c.Join = append(c.Join, strings.TrimSpace(addr))
		}
	}
	var err error
	c.PeerTLS, err = o.peer.config()
	faults = append(faults, err, c.Validate(), o.validate(), o.openPeerPort(c.PeerTLS))
	return c, errors.Join(faults...)
}

func (o *options) validate() error {
	faults := append(append(o.portFaults(), o.discoveryFaults()...), o.unix.faults()...)
	if err := cluster.CheckAddress(o.httpListen); err != nil && o.httpListen != "" {
		faults = append(faults, fmt.Errorf("--http-listen: %w, such as 127.0.0.1:8379", err))
	}
	if o.http.tls && o.tls.files.CertFile == "" {
		faults = append(faults, errors.New("--http-tls needs --tls-cert-file and --tls-key-file"))
	}
	if o.voter != "yes" && o.voter != "no" {
		faults = append(faults, fmt.Errorf("--voter %q: want yes or no", o.voter))
	}
	if o.protected != "yes" && o.protected != "no" {
		faults = append(faults, fmt.Errorf("--protected-mode %q: want yes or no", o.protected))
	}
	if _, err := o.limits(memoryPlan{}); err != nil {
		faults = append(faults, err)
	}
	if err := fractionOfMemory(); err != nil {
		faults = append(faults, err)
	}
	if o.maxClients < 0 {
		faults = append(faults, fmt.Errorf("--maxclients %d: want a number from 1 on, or 0 for the default", o.maxClients))
	}
	if o.scriptLimit <= 0 {
		faults = append(faults, errors.New("--script-time-limit must be more than 0, such as 5s"))
	}
	return errors.Join(faults...)
}

// loopback reports whether the host of an address is this machine's loopback interface, which no other machine reaches.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// logger makes the logger for --log-level and --log-format.
func (o *options) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", o.logLevel)
	}
	if o.level == nil {
		o.level = new(slog.LevelVar)
	}
	o.level.Set(level)
	opts := &slog.HandlerOptions{Level: o.level}
	switch o.logFormat {
	case "text":
		return slog.New(slog.NewTextHandler(w, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", o.logFormat)
}

// helpText returns the output of `lockstep help`.
func helpText() string {
	var b bytes.Buffer
	b.WriteString(`lockstep is a lock server that speaks the Redis protocol. A lock that it has
granted survives the death of any minority of its nodes.

  lockstep [serve]      start a node; without flags: one durable node at
                        127.0.0.1:6379 with its data in ./lockstep-data
  lockstep status       what a running node knows of itself
  lockstep members      who is in the cluster, and who leads
  lockstep add          take a node in, or give a member another peer address:
                        add ID PEER-ADDRESS
  lockstep remove       take a member out, dead or alive: remove ID
  lockstep transfer     hand leadership to another node: transfer [ID]
  lockstep snapshot     write a snapshot now
  lockstep lock NAME -- COMMAND ...
                        run COMMAND while holding the lock NAME of a node or
                        of a Redis, as flock does; see lock --help
  lockstep locks        the locks of all clients, their owners and tokens, and
                        how many clients wait for them
  lockstep lock-info NAME
                        who holds a lock, with which token, for how long yet
  lockstep lock-waiters NAME
                        who waits for a lock, in the order of the queue
  lockstep history [NAME]
                        what has happened to a lock, or to all locks
  lockstep lock-stats   how often locks were granted, expired, ended by force …,
                        and which locks are taken most
  lockstep force NAME --reason TEXT
                        end a lock, whoever holds it; who waits for it gets it
  lockstep audit --check DIR ...
                        read the files that nodes with --audit-dir have
                        written: no lock had two owners, and tokens rose
  lockstep health       ask the node on this machine whether it is ready; a
                        container's health check
  lockstep backup FILE  save the state of a running node; --verify: read FILE.
                        FILE may be - or s3://BUCKET/KEY, also for restore and
                        inspect; one that ends in / gets a name with the time
  lockstep restore FILE --data DIR
                        make DIR the data of a new cluster of one node
  lockstep inspect --data DIR
                        what the directory of a stopped node holds, or a
                        backup: inspect FILE; it changes nothing
  lockstep recover --data DIR
                        make the directory of a survivor the data of a new
                        cluster of one node, if the majority is lost for good
  lockstep secret FILE  make a secret for --peer-secret-file, by which nodes
                        know each other; a FILE that exists stays as it is
  lockstep bench        measure lockstep beside Redis, Redlock, etcd and
                        ZooKeeper, those that are installed; starts the
                        program lockstep-bench; see bench --help
  lockstep completion   bash, zsh or fish: a script by which the shell completes
                        commands and flags
  lockstep version      the version, the commit and the compiler; also --version
  lockstep help

Try it:
  lockstep &
  redis-cli SET my-lock me NX PX 30000

Three nodes on one machine (the same --peers everywhere):
  P=n1=127.0.0.1:7379,n2=127.0.0.1:7380,n3=127.0.0.1:7381
  lockstep --id n1 --data d1 --peers $P &
  lockstep --id n2 --data d2 --peers $P --listen 127.0.0.1:6380 --peer-listen 127.0.0.1:7380 --http-listen 127.0.0.1:8380 &
  lockstep --id n3 --data d3 --peers $P --listen 127.0.0.1:6381 --peer-listen 127.0.0.1:7381 --http-listen 127.0.0.1:8381 &

A fourth one that joins them; it gets its vote when it has caught up:
  lockstep --id n4 --data d4 --join 127.0.0.1:7379 --listen 127.0.0.1:6382 --peer-listen 127.0.0.1:7382 --http-listen 127.0.0.1:8382 &

Each flag is also an environment variable, --peer-listen is LOCKSTEP_PEER_LISTEN;
what is given as a flag counts; --owner and --token have no variables. Variables
of no flag are refused, but for LOCKSTEP_PEER_SECRET, which gives what
--peer-secret-file would.
`)
	for _, group := range flagGroups() {
		fmt.Fprintf(&b, "\nFlags of %s:\n", group.of)
		writeFlags(&b, group.flags)
	}
	b.WriteString("\n" + exitCodes + exitCodeNoLock + "; see lock --help for those of lock.\n")
	return b.String()
}

// flagGroup has the flags of one command, or the flags that several commands share. The field "of" names the command or the
// commands.
type flagGroup struct {
	of    string
	flags *flag.FlagSet
}

// flagGroups returns the flags of all commands except bench. The flags of bench belong to benchProgram and have no environment
// variables.
func flagGroups() []flagGroup {
	group := func(of string, define func(*flag.FlagSet)) flagGroup {
		fs := flag.NewFlagSet(of, flag.ContinueOnError)
		define(fs)
		return flagGroup{of, fs}
	}
	return []flagGroup{
		group("serve", new(options).define),
		group("status, members, add, remove, transfer, snapshot, backup, lock, locks, lock-info, lock-waiters, history, lock-stats and force", new(adminOptions).define),
		group("status, members, add, remove, transfer, snapshot, backup, locks, lock-info, lock-waiters, history, lock-stats, force, audit, restore, inspect, recover, secret and version", new(outputOptions).define),
		group("status and members", new(watchOptions).define),
		group("backup, besides", new(backupOptions).define),
		group("backup, restore and inspect", new(s3Options).define),
		group("lock, besides", new(lockOptions).define),
		group("locks, lock-info, lock-waiters, history, lock-stats and force", new(databaseOptions).define),
		group("locks, besides", new(locksOptions).define),
		group("history, besides", new(historyOptions).define),
		group("lock-stats, besides", new(statsOptions).define),
		group("force, besides", new(forceOptions).define),
		group("audit", new(auditOptions).define),
		group("health", new(healthOptions).define),
		group("restore", func(fs *flag.FlagSet) {
			cfg := cluster.Default()
			cfg.Data = ""
			defineRestore(fs, &cfg, new(int64))
		}),
		group("inspect", new(inspectOptions).define),
		group("recover", new(recoverOptions).define),
	}
}

func writeFlags(b *bytes.Buffer, fs *flag.FlagSet) {
	fs.VisitAll(func(f *flag.Flag) {
		arg, usage := flag.UnquoteUsage(f)
		fmt.Fprintf(b, "  --%s\n", strings.TrimSpace(f.Name+" "+arg))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" { // the usage itself says what 0 stands for
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "        %s\n", usage)
	})
}
