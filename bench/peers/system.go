package peers

import (
	"crypto/tls"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/wire"
	"github.com/lockstep-io/lockstep/conformance/certs"
)

// lease is the lease of a lock that is taken and soon released. holdLease is the lease of a lock that is held through a
// measurement.
const (
	lease     = time.Minute
	holdLease = 10 * time.Minute
)

// Kind is a peer that can be started.
type Kind struct {
	Name, About string
	// programs must be installed. The field "what" names the package that has them.
	programs []string
	what     string
	start    func(*System) error
}

// System is a peer that has been started.
type System struct {
	Kind
	Version string
	Traffic wire.Traffic // of all clients of the system

	site      *Site
	env       []string // environment of all processes
	processes []*process
	pipelines bool
	everyNode bool              // any server serves clients, not only the leader
	native    bool              // its sessions are load.Native
	lacks     map[string]string // why some workloads make no sense for this system, by workload

	open   func(owner, addr string) (load.Session, error)
	reset  func() ([]string, error) // deletes all locks, and returns the servers, the leader first
	hangUp func() error             // ends the connections that sessions share; may be nil
	nodes  []string                 // what reset has returned
	resp   []string                 // addresses of the servers that speak RESP

	files  certs.Files // the certificates that the servers show to clients that speak TLS
	secret *tls.Config // the configuration of such clients; nil: clients do not speak TLS

	mu  sync.Mutex
	hub *hub // shared by the sessions that have waited in Enter; nil if there is none
}

// Names returns the names of all kinds.
func Names() (names []string) {
	for _, k := range Kinds {
		names = append(names, k.Name)
	}
	return names
}

// Find returns the kind with a name. The suffix "-without-" and a fast path, for lockstep only, turns off that path.
func Find(name string) (Kind, error) {
	base, path, without := strings.Cut(name, "-without-")
	i := slices.IndexFunc(Kinds, func(k Kind) bool { return k.Name == base })
	if i < 0 || without && !strings.HasPrefix(base, "lockstep-") {
		return Kind{}, fmt.Errorf("there is no peer %q, but %s", name, strings.Join(Names(), ", "))
	}
	k := Kinds[i]
	if without {
		start := k.start
		k.Name, k.About, k.start = name, k.About+", --without "+path, func(s *System) error {
			s.env = []string{"LOCKSTEP_WITHOUT=" + path}
			return start(s)
		}
	}
	return k, nil
}

// ErrNotInstalled says that a peer is left out because its program is not installed.
var ErrNotInstalled = errors.New("not installed")

// Start starts the servers and waits until they serve.
func (k Kind) Start(site *Site) (*System, error) {
	for _, program := range k.programs {
		if _, err := lookup(program); err != nil {
			return nil, fmt.Errorf("%w: %w (package %s)", ErrNotInstalled, err, k.what)
		}
	}
	s := &System{Kind: k, site: site, Version: "unknown"}
	if err := k.start(s); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", k.Name, err), s.Stop())
	}
	if err := s.await(s.find); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", k.Name, err), s.Stop())
	}
	return s, nil
}

// lookup finds a program on the PATH, or in the directory where Debian keeps ZooKeeper's programs.
func lookup(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil && program == zkServer {
		return exec.LookPath("/usr/share/zookeeper/bin/" + zkServer)
	}
	return path, err
}

// launch starts one server of the system.
func (s *System) launch(name string, env []string, command ...string) error {
	p, err := s.site.launch(s.Name+"-"+name, slices.Concat(env, s.env), command...)
	if err == nil {
		s.processes = append(s.processes, p)
	}
	return err
}

// Reset deletes all locks, and waits until it finds the leader.
func (s *System) Reset() error {
	return s.await(s.find)
}

func (s *System) find() (err error) {
	s.nodes, err = s.reset()
	return err
}

// leaderFirst returns the addresses with that of the leader first.
func leaderFirst(addrs []string, leads func(addr string) (bool, error)) ([]string, error) {
	faults := []error{errors.New("no server leads")}
	for i, addr := range addrs {
		ok, err := leads(addr)
		if err != nil {
			faults = append(faults, err)
		}
		if ok {
			list := slices.Clone(addrs)
			list[0], list[i] = list[i], list[0]
			return list, nil
		}
	}
	return nil, errors.Join(faults...)
}

// At returns the target that connects clients to the servers of a place.
func (s *System) At(place load.Place) load.Target {
	t := &target{system: s, nodes: s.nodes[:1]}
	switch place {
	case load.Followers:
		t.nodes = s.nodes[1:]
	case load.All:
		t.nodes = s.nodes
	}
	return t
}

// target connects each new session to the next of the servers in turn.
type target struct {
	system *System
	nodes  []string
	n      int
}

func (t *target) Open(owner string) (load.Session, error) {
	addr := t.nodes[t.n%len(t.nodes)]
	t.n++
	return t.system.open(owner, addr)
}

// Stop ends the servers.
func (s *System) Stop() (err error) {
	if s.hangUp != nil {
		err = s.hangUp()
	}
	for _, p := range s.processes {
		err = errors.Join(err, p.kill())
	}
	return err
}

// Pipelines reports whether a client may send many requests without waiting for the replies.
func (s *System) Pipelines() bool { return s.pipelines }

// Servers returns the number of server processes.
func (s *System) Servers() int { return len(s.processes) }

// patience is how many locks can be taken before a measurement if each needs a round trip and a write to the disk.
const patience = 10_000

// Lacks returns why a case cannot be measured on this system; "" if it can.
func (s *System) Lacks(c load.Case) string {
	if reason := s.lacks[c.Workload]; reason != "" {
		return reason
	}
	switch {
	case c.Workload == "native-cycle" && !s.native:
		return "it has no commands for locks but those of cycle"
	case c.Pipeline > 1 && !s.pipelines:
		return "its clients do not pipeline"
	case c.Alive > patience && !s.pipelines, c.Workload == "expire" && !s.pipelines:
		return "its clients do not pipeline, and to take so many locks would take minutes"
	case c.At != load.Leader && !s.everyNode:
		return "one server has all clients"
	}
	return ""
}

// Kinds has all kinds of peers.
var Kinds = []Kind{
	{"redis", "one Redis without persistence", redisPrograms, redisPackage, startRedis("no")},
	{"redis-always", "one Redis, appendfsync always", redisPrograms, redisPackage, startRedis("always")},
	{"redis-tls", "redis, clients speak TLS", redisPrograms, redisPackage, withTLS(startRedis("no"))},
	{"redis-always-tls", "redis-always, clients speak TLS", redisPrograms, redisPackage, withTLS(startRedis("always"))},
	{"redis-wait", "Redis with two replicas, appendfsync everysec, WAIT 1 after each lock", redisPrograms, redisPackage, startReplicated},
	{"redlock", "Redlock over three Redis, appendfsync always", redisPrograms, redisPackage, startRedlock},
	{"etcd", "three etcd", []string{"etcd"}, "etcd-server", startEtcd},
	{"zookeeper", "three ZooKeeper", []string{zkServer, "java"}, "zookeeper", startZooKeeper},
	{"lockstep-ephemeral", "lockstep --ephemeral", nil, "", startLockstepEphemeral},
	{"lockstep-1", "one durable lockstep", nil, "", startLockstep(1)},
	{"lockstep-3", "three durable lockstep", nil, "", startLockstep(3)},
	{"lockstep-5", "five durable lockstep", nil, "", startLockstep(5)},
	{"lockstep-3-bolt", "three durable lockstep, --log-store bolt", nil, "", startLockstep(3, "--log-store", "bolt")},
	{"lockstep-3-secret", "three durable lockstep, --peer-secret-file: TLS between the nodes", nil, "", startLockstepIn(3, peerSecret)},
	{"lockstep-3-tls", "lockstep-3-secret, clients speak TLS too", nil, "", withTLS(startLockstepIn(3, peerSecret))},
	{"lockstep-3-lease", "three durable lockstep, --lease-reads", nil, "", startLockstep(3, "--lease-reads")},
}
