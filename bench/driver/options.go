package driver

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/peers"
	"github.com/lockstep-io/lockstep/bench/report"
)

// Options are the flags of the command line.
type Options struct {
	Lockstep            string
	Peers, Workloads    string
	Clients, Pipelines  string
	Alive, Tokens, At   string
	Queues              string
	Rate                float64
	Locks, Rounds, Port int
	Warm, For, Within   time.Duration
	Dir, JSON, SVG      string
	Markdown, From      string
	Keep, Claims        bool

	// Command is the command line that the report shows.
	Command string
}

// Define declares the flags with their defaults.
func (o *Options) Define(fs *flag.FlagSet) {
	fs.StringVar(&o.Lockstep, "lockstep", "", "the lockstep `program` that is measured (default: the one beside this program, or else the one in PATH)")
	fs.StringVar(&o.Peers, "peers", strings.Join(peers.Names(), ","), "what is measured; what is not installed is left out")
	fs.StringVar(&o.Workloads, "workloads", "", "of "+strings.Join(workloadNames(), ", ")+" (default: cycle; with --check, those that it needs)")
	fs.StringVar(&o.Clients, "clients", "50", "`numbers` of clients, each a measurement")
	fs.StringVar(&o.Pipelines, "pipeline", "1", "`numbers` of requests that a client sends at once, each a measurement")
	fs.StringVar(&o.Alive, "alive", "0", "`numbers` of locks that are held beside, each a measurement; what memory they take is told of 10,000 and more")
	fs.StringVar(&o.Tokens, "token", "0", "`numbers` of bytes that the owners' tokens have at least, which are the values of their locks, each a measurement")
	fs.StringVar(&o.Queues, "queues", "1", "`numbers` of locks that the clients of contended, herd and native wait for, each a measurement; as many clients wait for each lock")
	fs.StringVar(&o.At, "at", "leader", "which `servers` the clients speak to, each a measurement: leader, followers, all")
	fs.Float64Var(&o.Rate, "rate", 0, "operations per second that all clients together are to begin, whether the peer keeps up or not; 0: each begins when its last has ended")
	fs.IntVar(&o.Locks, "locks", 100_000, "how many locks unlock and renew hold, if the peer can take them in three times --for and --warm together, and how many leases expire has")
	fs.DurationVar(&o.Within, "within", time.Second, "the time in which the leases of expire end; 0: all at once")
	fs.IntVar(&o.Rounds, "rounds", 5, "how often everything is measured; medians are shown")
	fs.DurationVar(&o.For, "for", 3*time.Second, "how long each measurement lasts")
	fs.DurationVar(&o.Warm, "warm", 500*time.Millisecond, "how long each client works before it")
	fs.StringVar(&o.Dir, "dir", "", "`directory` for the servers' data, which chooses the disk: /dev/shm is memory (default: the system's for temporary files)")
	fs.IntVar(&o.Port, "port", 21000, "first of the ports; taken ones are passed over")
	fs.StringVar(&o.JSON, "json", "", "write everything that is known to this `file`")
	fs.StringVar(&o.SVG, "svg", "", "draw operations per second into this `file`")
	fs.StringVar(&o.Markdown, "markdown", "", "write the report into `FILE#SECTION`, between <!-- SECTION --> and <!-- end of SECTION -->")
	fs.StringVar(&o.From, "from", "", "measure nothing: report what --json has written to this `file`")
	fs.BoolVar(&o.Claims, "check", false, "measure what lockstep promises beside its peers, and fail if it does not hold; --peers and --workloads choose among that")
	fs.BoolVar(&o.Keep, "keep", false, "leave the servers' data and logs")
}

func workloadNames() (names []string) {
	for _, w := range load.Workloads {
		names = append(names, w.Name)
	}
	return names
}

// longest bounds a measurement, because nothing renews its sessions (40 seconds) and leases (a minute).
const longest = 20 * time.Second

// plan is what the options ask for.
type plan struct {
	Options
	kinds  []peers.Kind
	cases  []load.Case
	wanted map[measurement]bool // nil: every case of every peer
	memory bool                 // the data are on a RAM disk
}

// measurement is a case with the peer that it is measured for.
type measurement struct {
	peer string
	c    load.Case
}

// Check returns an error with every fault in the options.
func (o *Options) Check() error {
	_, err := o.plan()
	return err
}

func (o *Options) plan() (*plan, error) {
	p := &plan{Options: *o}
	if p.Dir == "" {
		p.Dir = os.TempDir()
	}
	p.memory = report.Machine{FileSystem: fileSystem(p.Dir)}.Memory()
	faults := []error{p.choose(), p.limits()}
	var err error
	if p.Lockstep, err = program(o.Lockstep); err != nil {
		faults = append(faults, fmt.Errorf("--lockstep: %w", err))
	}
	if file, section, ok := strings.Cut(o.Markdown, "#"); o.Markdown != "" && !ok {
		faults = append(faults, errors.New("--markdown: want FILE#SECTION"))
	} else if ok {
		_, _, err := report.Section(file, section)
		faults = append(faults, prefixed("--markdown", err))
	}
	return p, errors.Join(faults...)
}

// choose finds what is to be measured.
func (p *plan) choose() error {
	var faults []error
	for _, name := range strings.Split(p.Peers, ",") {
		kind, err := peers.Find(name)
		faults = append(faults, prefixed("--peers", err))
		p.kinds = append(p.kinds, kind)
	}
	names := []string{"cycle"}
	if p.Workloads != "" {
		names = strings.Split(p.Workloads, ",")
	}
	for _, name := range names {
		_, err := load.Find(name)
		faults = append(faults, prefixed("--workloads", err))
	}
	clients, err := numbers(p.Clients, 1)
	faults = append(faults, prefixed("--clients", err))
	pipelines, err := numbers(p.Pipelines, 1)
	faults = append(faults, prefixed("--pipeline", err))
	alive, err := numbers(p.Alive, 0)
	faults = append(faults, prefixed("--alive", err))
	tokens, err := numbers(p.Tokens, 0)
	faults = append(faults, prefixed("--token", err))
	queues, err := numbers(p.Queues, 1)
	faults = append(faults, prefixed("--queues", err))
	at, err := places(p.At)
	faults = append(faults, prefixed("--at", err))
	if p.Claims {
		return errors.Join(append(faults, p.chooseClaims())...)
	}
	p.cases = []load.Case{{Rate: p.Rate}}
	p.cases = times(p.cases, names, func(c *load.Case, name string) { c.Workload = name })
	p.cases = times(p.cases, pipelines, func(c *load.Case, depth int) { c.Pipeline = depth })
	p.cases = times(p.cases, clients, func(c *load.Case, n int) { c.Clients = n })
	p.cases = times(p.cases, alive, func(c *load.Case, held int) { c.Alive = held })
	p.cases = times(p.cases, tokens, func(c *load.Case, bytes int) { c.Token = bytes })
	p.cases = withQueues(p.cases, queues)
	p.cases = times(p.cases, at, func(c *load.Case, place load.Place) { c.At = place })
	return errors.Join(faults...)
}

// times returns each of the given cases once with each of the given values.
func times[T any](cases []load.Case, values []T, set func(*load.Case, T)) (all []load.Case) {
	for _, c := range cases {
		for _, v := range values {
			set(&c, v)
			all = append(all, c)
		}
	}
	return all
}

// withQueues does what times does, with the numbers of locks that clients wait for. A case in which nobody waits stays as it is.
func withQueues(cases []load.Case, numbers []int) (all []load.Case) {
	for _, c := range cases {
		if w, err := load.Find(c.Workload); err != nil || !w.Queued() { // choose reports the error
			all = append(all, c)
			continue
		}
		all = append(all, times([]load.Case{c}, numbers, func(c *load.Case, n int) {
			if c.Queues = n; n == 1 {
				c.Queues = 0 // so the case equals that of a claim
			}
		})...)
	}
	return all
}

// chooseClaims chooses the measurements that the claims about the chosen peers and workloads need.
func (p *plan) chooseClaims() error {
	p.wanted = map[measurement]bool{}
	for _, claim := range report.Claims() {
		if !claim.On(p.memory) || slices.ContainsFunc(claim.Needs(), p.leavesOut) {
			continue
		}
		for _, t := range claim.Needs() {
			p.wanted[measurement{t.Peer, t.Case}] = true
			if !slices.Contains(p.cases, t.Case) {
				p.cases = append(p.cases, t.Case)
			}
		}
	}
	p.kinds = slices.DeleteFunc(p.kinds, func(k peers.Kind) bool {
		return !slices.ContainsFunc(p.cases, func(c load.Case) bool { return p.wants(k.Name, c) })
	})
	if len(p.cases) == 0 {
		return errors.New("--check: there is no claim about these --peers and --workloads")
	}
	return nil
}

// leavesOut reports whether --peers or --workloads exclude a figure of a claim.
func (p *plan) leavesOut(t report.Term) bool {
	return !slices.ContainsFunc(p.kinds, func(k peers.Kind) bool { return k.Name == t.Peer }) ||
		p.Workloads != "" && !slices.Contains(strings.Split(p.Workloads, ","), t.Case.Workload)
}

// wants reports whether a case is to be measured for a peer.
func (p *plan) wants(peer string, c load.Case) bool {
	return p.wanted == nil || p.wanted[measurement{peer, c}]
}

func (p *plan) limits() error {
	var faults []error
	if p.Rounds < 1 || p.Locks < 1 || p.Rate < 0 {
		faults = append(faults, errors.New("--rounds and --locks must be at least 1, --rate not less than 0"))
	}
	if p.For <= 0 || p.Warm < 0 || p.For > longest || p.Warm > longest || p.Within < 0 || p.Within > longest {
		faults = append(faults, fmt.Errorf("--for must be more than 0, --warm and --within not less, and none more than %v", longest))
	}
	return errors.Join(faults...)
}

// places reads a list such as leader,followers,all.
func places(list string) (ps []load.Place, err error) {
	for _, text := range strings.Split(list, ",") {
		place := load.Place(text)
		switch place {
		case "leader":
			place = load.Leader
		case load.Followers, load.All:
		default:
			return nil, fmt.Errorf("%q is not leader, followers or all", text)
		}
		ps = append(ps, place)
	}
	return ps, nil
}

// files returns how many files this process must be able to open at once: at most three connections for each client, and 1000
// others.
func (p *plan) files() uint64 {
	most := 0
	for _, c := range p.cases {
		most = max(most, c.Clients)
	}
	return uint64(3*most) + 1000
}

func prefixed(flag string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// program returns the absolute path of the lockstep program, because servers run in other directories.
func program(name string) (string, error) {
	if name == "" {
		own, err := os.Executable()
		if err != nil {
			return "", err
		}
		name = filepath.Join(filepath.Dir(own), "lockstep")
		if _, err := os.Stat(name); err != nil {
			if name, err = exec.LookPath("lockstep"); err != nil {
				return "", fmt.Errorf("there is no lockstep in %s and none in PATH: `make build` builds both", filepath.Dir(own))
			}
		}
	}
	path, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	_, err = os.Stat(path)
	return path, err
}

// numbers reads a list such as 1,10,50.
func numbers(list string, least int) (ns []int, err error) {
	for _, text := range strings.Split(list, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < least {
			return nil, fmt.Errorf("%q is not a number of at least %d", text, least)
		}
		if !slices.Contains(ns, n) {
			ns = append(ns, n)
		}
	}
	return ns, nil
}
