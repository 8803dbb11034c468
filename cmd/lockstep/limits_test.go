package main

import (
	"errors"
	"log/slog"
	"math"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/lockstep-io/lockstep/cluster"
	"github.com/lockstep-io/lockstep/conformance/nodes"
	"github.com/lockstep-io/lockstep/conformance/ports"
)

func TestLimitMemory(t *testing.T) {
	was := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(was) })
	none := func(err error) memlimit.Provider { return func() (uint64, error) { return 0, err } }
	for what, c := range map[string]struct {
		limit memlimit.Provider
		env   string
		want  int64
	}{
		"a container of 1000 MB": {memlimit.Limit(1e9), "", 9e8},
		"GOMEMLIMIT says other":  {memlimit.Limit(1e9), "500MB", 7e8},
		"none is set":            {none(memlimit.ErrNoLimit), "", math.MaxInt64},
		"it cannot be read":      {none(errors.New("no cgroups")), "", 7e8},
	} {
		t.Run(what, func(t *testing.T) {
			if c.env != "" {
				t.Setenv("GOMEMLIMIT", c.env)
			}
			debug.SetMemoryLimit(7e8) // as if Go had read it from the environment
			for range 2 {             // a second node in the process changes nothing
				plan := limitMemory(c.limit, slog.New(slog.DiscardHandler))
				if got := debug.SetMemoryLimit(-1); got != collectorLimit(c.want) {
					t.Errorf("the limit is %d, want %d", got, collectorLimit(c.want))
				}
				if plan != planMemory(c.want) {
					t.Errorf("the plan is %+v, want that of %d", plan, c.want)
				}
			}
		})
	}
}

func TestMemoryOf(t *testing.T) {
	unknown := func() (uint64, error) { return 0, memlimit.ErrNoLimit }
	for want, providers := range map[int64][]memlimit.Provider{
		0:   {unknown, memlimit.Limit(math.MaxUint64)},
		5e8: {memlimit.Limit(5e8), memlimit.Limit(8e9)},
		8e9: {unknown, memlimit.Limit(8e9)},
		7e9: {memlimit.Limit(math.MaxInt64 / 4096 * 4096), memlimit.Limit(7e9)}, // a cgroup of version 1 without a limit
	} {
		if got := memoryOf(providers...); got != want {
			t.Errorf("memory %d, want %d", got, want)
		}
	}
}

// TestMaxMemoryIsComparedAtTheStart: a node warns at its start if maxmemory, from its flag or from the cluster, is more than its
// memory.
func TestMaxMemoryIsComparedAtTheStart(t *testing.T) {
	addrs := ports.Addrs(t, 2)
	o := options{id: "n1", listen: addrs[0], sentinelListen: addrs[1], sentinelAuth: "yes", masterName: "mymaster", protected: "yes", voter: "yes", ephemeral: true,
		failoverWait: time.Second, scriptLimit: time.Second}
	cfg, err := o.clusterConfig()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Limits.Memory = 2e9
	text := &logged{}
	log := slog.New(slog.NewTextHandler(text, nil))
	p, err := assemble(o, cfg, memoryPlan{all: 1e9}, cluster.NewSystemTime(), log, func() {})
	if err != nil {
		t.Fatal(err)
	}
	ended := p.serve()
	announce(t.Context(), p, o, log)
	for _, limit := range []string{"3000000000", "1000"} {
		if got := speak(t, o.listen).ask("CONFIG SET maxmemory " + limit); got != "+OK" {
			t.Error(got)
		}
	}
	announce(t.Context(), p, o, log) // as at the next start
	(&member{parts: p}).stop(t)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(regexp.MustCompile(`maxmemory=\d+ memory=\d+`).FindAllString(text.String(), -1), ", "); got !=
		"maxmemory=2000000000 memory=1000000000, maxmemory=3000000000 memory=1000000000" {
		t.Errorf("warned of %s", got)
	}
}

// logged is a log that many goroutines may write.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestLimitProcessors(t *testing.T) {
	was := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(was) })
	t.Setenv("GOMAXPROCS", "")
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	for range 2 { // a second node in the process changes nothing
		limitProcessors()
		if got := runtime.GOMAXPROCS(0); got != max(1, all-1) {
			t.Errorf("%d processors of %d", got, all)
		}
	}
	t.Setenv("GOMAXPROCS", "7")
	runtime.GOMAXPROCS(7) // as if Go had read it from the environment
	if limitProcessors(); runtime.GOMAXPROCS(0) != 7 {
		t.Errorf("%d processors, GOMAXPROCS says 7", runtime.GOMAXPROCS(0))
	}
}

// TestClientsWithin: whatever files clients make the servers open, the reserved files stay free, and clients get a useful number.
func TestClientsWithin(t *testing.T) {
	for _, o := range []options{
		{}, {sentinelListen: "x"}, {tls: tlsOptions{listen: "x"}}, {tls: tlsOptions{clusterListen: "x"}},
		{sentinelListen: "x", tls: tlsOptions{listen: "x", sentinelListen: "x"}},
		{httpListen: "x"}, {httpListen: "x", http: httpOptions{tls: true}}, {httpListen: "x", http: httpOptions{tls: true}, tls: tlsOptions{listen: "x"}},
	} {
		for _, files := range []int{fewestFiles, 2000, 4096, 20_000, 1 << 20} {
			clients, handshakes := o.clientsWithin(files, 512)
			servers, secret := 1, 0
			for _, listens := range []bool{o.sentinelListen != "", o.tls.sentinelListen != ""} {
				if listens {
					servers++
				}
			}
			for _, listens := range []bool{o.tls.listen+o.tls.clusterListen != "" || o.http.tls, o.tls.sentinelListen != ""} {
				if listens {
					secret++
				}
			}
			if most := servers*(clients+clients/8) + secret*(3*handshakes+(handshakes+1)/2+handshakes/4) + reservedFiles; most > files || clients < 64 || handshakes < 8 {
				t.Errorf("%d files: %d clients and %d handshakes of each of %d servers open %d", files, clients, handshakes, servers, most)
			}
		}
	}
}

// TestFewFiles: a node does not start if its limit of open files is so low that strangers could keep it from opening its log.
func TestFewFiles(t *testing.T) {
	cmd := exec.Command("sh", "-c", "ulimit -n 256; exec \"$0\" --ephemeral --listen 127.0.0.1:0 --http-listen ''", nodes.Binary(t))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "may open 256 files") || !strings.Contains(string(out), "LimitNOFILE") {
		t.Errorf("%v: %s", err, out)
	}
}
