package driver

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockstep-io/lockstep/bench/load"
	"github.com/lockstep-io/lockstep/bench/peers"
	"github.com/lockstep-io/lockstep/bench/report"
	"github.com/lockstep-io/lockstep/conformance/nodes"
)

// Unless args has -lockstep, the program of this test stands in for lockstep, and must not be started.
func options(t *testing.T, args ...string) *Options {
	t.Helper()
	var o Options
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	o.Define(fs)
	if err := fs.Parse(append([]string{"-lockstep", os.Args[0]}, args...)); err != nil {
		t.Fatal(err)
	}
	return &o
}

// port returns the first port for this test. Test processes that run at the same time begin at different ports.
func port() string { return strconv.Itoa(20000 + os.Getpid()%90*100 + 50) }

func TestOptions(t *testing.T) {
	p, err := options(t, "-workloads", "cycle,rlock", "-clients", "1,50,1", "-pipeline", "1,16", "-alive", "0", "-peers", "etcd,redis").plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(p.cases) != 8 || p.cases[1] != (load.Case{Workload: "cycle", Clients: 50, Pipeline: 1}) || p.cases[7] != (load.Case{Workload: "rlock", Clients: 50, Pipeline: 16}) {
		t.Errorf("%v", p.cases)
	}
	if p.kinds[0].Name != "etcd" || p.kinds[1].Name != "redis" {
		t.Errorf("%v", p.kinds)
	}
	if !filepath.IsAbs(p.Lockstep) {
		t.Errorf("servers run in other directories, and lockstep is %s", p.Lockstep)
	}
}

// Clients wait for several locks only in workloads in which they wait at all.
func TestQueues(t *testing.T) {
	p, err := options(t, "-workloads", "cycle,native", "-clients", "1000", "-queues", "1,50").plan()
	want := []load.Case{{Workload: "cycle", Clients: 1000, Pipeline: 1}, {Workload: "native", Clients: 1000, Pipeline: 1},
		{Workload: "native", Clients: 1000, Pipeline: 1, Queues: 50}}
	if err != nil || !slices.Equal(p.cases, want) {
		t.Errorf("%v, %v, want %v", p.cases, err, want)
	}
	if s := p.spec(load.Workload{}, want[2], false); s.Clients != 1000 || s.Queues != 50 {
		t.Errorf("%+v", s)
	}
}

// If the file has no place for the report, the run fails before anything is measured.
func TestNoSection(t *testing.T) {
	if err := options(t, "-markdown", "driver_test.go#no such").Check(); err == nil || !strings.Contains(err.Error(), "--markdown") {
		t.Errorf("got %v", err)
	}
}

func TestPlaces(t *testing.T) {
	p, err := options(t, "-at", "leader,followers,all").plan()
	if err != nil || len(p.cases) != 3 || p.cases[0].At != load.Leader || p.cases[1].At != load.Followers || p.cases[2].At != load.All || p.cases[0].Workload != "cycle" {
		t.Errorf("%v, %v", p.cases, err)
	}
}

// With --check, a case is measured only for the peers that some claim compares in it.
func TestClaimsChoose(t *testing.T) {
	p := &plan{Options: *options(t, "-check")}
	if err := p.choose(); err != nil {
		t.Fatal(err)
	}
	cycle := func(clients int) load.Case { return load.Case{Workload: "cycle", Clients: clients, Pipeline: 1} }
	for m, want := range map[measurement]bool{
		{"redlock", cycle(50)}: true, {"redlock", cycle(200)}: false, {"redis-always", cycle(200)}: true, {"etcd", cycle(50)}: true,
		{"lockstep-3", load.Case{Workload: "expire", Clients: 50, Pipeline: 1}}: true,
	} {
		if got := p.wants(m.peer, m.c); got != want {
			t.Errorf("%v is wanted: %v, want %v", m, got, want)
		}
	}
	for _, k := range p.kinds {
		if k.Name == "redis-wait" || k.Name == "lockstep-3-bolt" {
			t.Errorf("%s is started, and there is no claim about it", k.Name)
		}
	}
}

// --peers and --workloads may leave out peers or workloads that some claims need. These claims are not checked, and nothing is
// measured for them.
func TestClaimsChosen(t *testing.T) {
	p := &plan{Options: *options(t, "-check", "-peers", "lockstep-ephemeral,redis,lockstep-3", "-workloads", "set,miss,contended")}
	if err := p.choose(); err != nil {
		t.Fatal(err)
	}
	var cases []string
	for _, c := range p.cases {
		cases = append(cases, c.String())
	}
	want := []string{"set, 50 clients", "set, 50 clients, pipelined 16", "set, 1 client", "contended, 50 clients", "miss, 50 clients",
		"set, 50 clients, 1000000 locks held beside", "set, 50 clients, 1000 locks held beside"}
	if !slices.Equal(cases, want) || p.wants("redis", load.Case{Workload: "set", Clients: 1, Pipeline: 1}) {
		t.Errorf("%q, want %q", cases, want)
	}
	p = &plan{Options: p.Options, memory: true}
	if err := p.choose(); err != nil || len(p.cases) != 2 || len(p.kinds) != 2 {
		t.Errorf("on a RAM disk: %v of %v, %v", p.cases, p.kinds, err)
	}
	if err := options(t, "-check", "-peers", "etcd").Check(); err == nil || !strings.Contains(err.Error(), "--check") {
		t.Errorf("etcd alone: got %v", err)
	}
}

// One error lists all faults of the options.
func TestFaults(t *testing.T) {
	err := options(t, "-workloads", "sleep", "-at", "home", "-alive", "-1", "-queues", "0", "-within", "1h", "-markdown", "p.md", "-clients", "0", "-pipeline", "x", "-peers", "mysql", "-rounds", "0", "-for", "1h", "-lockstep", "/nosuch").Check()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, flag := range []string{"--workloads", "--at", "--alive", "--queues", "--within", "--markdown", "--clients", "--pipeline", "--peers", "--rounds", "--for", "--lockstep"} {
		if !strings.Contains(err.Error(), flag) {
			t.Errorf("%s is not told: %v", flag, err)
		}
	}
}

// A turn is repeated after a connection has ended, but after no other error.
func TestBroken(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("client 3: lock: %w", io.EOF):            true,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}:   true,
		errors.New("a lock was granted twice"):              false,
		&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}: false,
		fmt.Errorf("a reply: %w", os.ErrDeadlineExceeded):   false,
		errors.Join(errors.New("two"), io.ErrUnexpectedEOF): true,
	} {
		if broken(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

func TestFigures(t *testing.T) {
	ms := time.Millisecond
	out := load.Outcome{Ops: 80, Elapsed: time.Second, AllOps: 100, Whole: 2 * time.Second, Latencies: []time.Duration{3 * ms, ms, 2 * ms}, PerClient: []int{75, 25}, Waits: []time.Duration{5 * ms, ms}, Calm: []time.Duration{3 * ms, ms}, Gone: 4 * ms}
	before := taken{servers: peers.Usage{CPU: time.Second, Written: 1000, Sent: 5000}, clients: ms, sent: 10, received: 20}
	after := taken{servers: peers.Usage{CPU: 1100 * ms, Written: 3000, Sent: 12000}, clients: 401 * ms, sent: 1010, received: 2020}
	got := figures(out, before, after, 2)
	want := report.Turn{Seconds: 1, Ops: 80, Figure: report.Figure{Rate: 80, P50: 2000, P99: 3000, P999: 3000, ServerCPU: 1000, ClientCPU: 4000,
		ClientPart: 0.1, Disk: 20, Wire: 30, Between: 50, Fairness: 0.8, Wait: 3000, WaitP99: 5000, Memory: -1, Calm: 3000, Gone: 4000}}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	before.servers = peers.Usage{CPU: -1, Written: -1, Sent: -1}
	out.Waits = nil
	if got := figures(out, before, after, 2); got.Wait != -1 || got.WaitP99 != -1 || got.ServerCPU != -1 || got.Disk != -1 || got.Between != -1 {
		t.Errorf("what is unknown is %+v", got)
	}
}

func TestSyncTimes(t *testing.T) {
	dir := t.TempDir()
	times, err := syncTimes(dir)
	if err != nil || len(times) != syncsTaken || slices.Min(times) <= 0 {
		t.Errorf("%v, %v", times, err)
	}
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestRun is a small run: it measures two peers that need no other program, and makes every part of a report.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	json1, svg, md := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.svg"), filepath.Join(dir, "r.md")
	data := filepath.Join(dir, "data")
	if err := errors.Join(os.Mkdir(data, 0o700), os.WriteFile(md, []byte("<!-- here --><!-- end of here -->"), 0o600)); err != nil {
		t.Fatal(err)
	}
	o := options(t, "-lockstep", nodes.Binary(t), "-peers", "lockstep-ephemeral,lockstep-1", "-workloads", "cycle,expire", "-clients", "4",
		"-pipeline", "16", "-alive", "10000", "-locks", "2000", "-rounds", "2", "-for", "200ms", "-warm", "10ms", "-within", "100ms",
		"-dir", data, "-port", port(), "-json", json1, "-svg", svg, "-markdown", md+"#here")
	o.Command = "lockstep bench and so on"
	var table strings.Builder
	if err := o.Run(t.Context(), &table, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cycle, 4 clients, pipelined 16, 10000 locks held beside\n", "calm p99", "lockstep-1", "lockstep-ephemeral"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, table.String())
		}
	}
	r, err := report.Read(json1)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Results) != 4 || r.Fsync.P50 <= 0 || r.Command != o.Command || r.When.IsZero() {
		t.Errorf("%+v", r)
	}
	for _, res := range r.Results {
		m := res.Median
		if len(res.Turns) != 2 || m == nil || m.Rate <= 0 || m.P999 < m.P50 || m.Wire <= 0 {
			t.Fatalf("%+v", res)
		}
		if expires := res.Workload == "expire"; expires != (m.Calm > 0) || expires != (m.Gone >= 0) {
			t.Errorf("%s of %v: %v before the leases end, gone after %v", res.Peer, res.Case, m.Calm, m.Gone)
		}
		// A lock takes about a hundred bytes, but Go's heap grows in larger steps.
		if runtime.GOOS == "linux" && (m.Memory < 0 || m.Memory > 5000) {
			t.Errorf("%s of %v: %v bytes for a lock", res.Peer, res.Case, m.Memory)
		}
	}
	for file, want := range map[string]string{svg: "</svg>", md: "| lockstep-1 |"} {
		if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %s, %v", file, b, err)
		}
	}
	if left, err := os.ReadDir(data); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
	again(t, json1, table.String())
}

// TestRunQueued is a small run of clients that wait for several locks, by lockstep's commands and by Redisson's recipe.
func TestRunQueued(t *testing.T) {
	o := options(t, "-lockstep", nodes.Binary(t), "-peers", "lockstep-ephemeral", "-workloads", "contended,native,native-cycle", "-clients", "12",
		"-queues", "3", "-rounds", "1", "-for", "200ms", "-warm", "50ms", "-dir", t.TempDir(), "-port", port())
	o.JSON = filepath.Join(t.TempDir(), "r.json")
	if err := o.Run(t.Context(), io.Discard, io.Discard); err != nil {
		t.Fatal(err)
	}
	r, err := report.Read(o.JSON)
	if err != nil || len(r.Results) != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	for _, res := range r.Results {
		m, queued := res.Median, res.Workload != "native-cycle"
		if m == nil || m.Rate <= 0 || queued != (res.Queues == 3) || queued != (m.Wait > 0) || queued != (m.WaitP99 > 0) {
			t.Errorf("%+v: %+v", res, m)
		}
	}
}

// again makes a report from the figures in a file, and checks that it equals the given table of the first report.
func again(t *testing.T, file, table string) {
	t.Helper()
	var second strings.Builder
	if err := options(t, "-from", file).Run(t.Context(), &second, io.Discard); err != nil || second.String() != table {
		t.Errorf("out of the file: %v\n%s, first was\n%s", err, second.String(), table)
	}
}

// cue is a writer that calls a function when something is written that contains the text.
type cue struct {
	text string
	call func()
}

func (c cue) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.text) {
		c.call()
	}
	return len(b), nil
}

// A run that is broken off ends at once and leaves no server and no data.
func TestBrokenOff(t *testing.T) {
	data := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options(t, "-lockstep", nodes.Binary(t), "-peers", "lockstep-ephemeral", "-warm", "0s", "-for", "20s", "-dir", data, "-port", port())
	var broken time.Time
	soon := cue{"runs", func() {
		time.AfterFunc(300*time.Millisecond, func() {
			broken = time.Now()
			cancel()
		})
	}}
	if err := o.Run(ctx, io.Discard, soon); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(broken); took > 10*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if left, err := os.ReadDir(data); len(left) > 0 || err != nil {
		t.Errorf("%v is left, %v", left, err)
	}
}
